-- +goose Up

-- For the log of a sale. While the index is created, the log can be read but not written.
-- Its lock waits for every transaction that has written the log, and other transactions that write it wait behind it.
-- After the timeout the migration fails, and the process that started repeats it.
SET LOCAL lock_timeout = '2s';
CREATE INDEX IF NOT EXISTS admin_log_sale ON admin_log (sale_id, id) WHERE sale_id <> '';
