-- +goose Up

-- Grows when the endpoint is resumed or its URL changes. The results of requests that began before do not change it.
ALTER TABLE webhook_endpoints ADD COLUMN revision bigint NOT NULL DEFAULT 0;
