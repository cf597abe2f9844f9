-- +goose Up

-- The sale that an entry concerns. '': none, or a process of an earlier version wrote the entry.
-- The table is not rewritten, but its lock waits for every transaction that reads the table, such as pg_dump, and other
-- transactions wait behind it. After the timeout the migration fails, and the process that started repeats it.
SET LOCAL lock_timeout = '2s';
ALTER TABLE admin_log ADD COLUMN sale_id text COLLATE "C" NOT NULL DEFAULT '';
