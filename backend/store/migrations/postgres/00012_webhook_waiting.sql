-- +goose Up

-- For the list of waiting deliveries: without it, a few waiting ones are behind all delivered ones. While the index is
-- created, deliveries can be read but not written. In a large database, create it with CONCURRENTLY before the upgrade.
CREATE INDEX IF NOT EXISTS webhook_deliveries_waiting ON webhook_deliveries (endpoint_id, number) WHERE state = 1;
