-- +goose Up

-- The log is filtered by ranges of actions: those that begin with a text and a full stop. The order of a language
-- compares punctuation last, and such a range would be empty.
ALTER TABLE admin_log ALTER COLUMN action TYPE text COLLATE "C";
