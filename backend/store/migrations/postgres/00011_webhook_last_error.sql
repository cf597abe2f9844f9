-- +goose Up

-- The last failed attempt, also after later successes. '' and NULL: there was none.
ALTER TABLE webhook_endpoints ADD COLUMN last_error text NOT NULL DEFAULT '';
ALTER TABLE webhook_endpoints ADD COLUMN last_error_at timestamptz;
