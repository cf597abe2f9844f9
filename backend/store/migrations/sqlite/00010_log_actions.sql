-- +goose Up

-- No change: SQLite compares text by byte.
SELECT 1;
