-- +goose Up

-- For the list of waiting deliveries: without it, a few waiting ones are behind all delivered ones.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (endpoint_id, number) WHERE state = 1;
