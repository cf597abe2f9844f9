-- +goose Up

-- See the file for PostgreSQL.
ALTER TABLE admin_log ADD COLUMN sale_id text NOT NULL DEFAULT '';
