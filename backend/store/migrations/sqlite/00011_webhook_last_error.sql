-- +goose Up

ALTER TABLE webhook_endpoints ADD COLUMN last_error text NOT NULL DEFAULT '';
ALTER TABLE webhook_endpoints ADD COLUMN last_error_at integer;
