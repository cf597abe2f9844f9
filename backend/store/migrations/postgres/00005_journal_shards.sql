-- +goose Up

-- Each shard of a backend has a journal of its own.
ALTER TABLE journals ADD COLUMN shard integer NOT NULL DEFAULT 0;

-- +goose Down

ALTER TABLE journals DROP COLUMN shard;
