-- +goose Up

-- What waits is looked for in three ways, each with an index of its own that is of no use for the others: what is ahead of a delivery in the sequence of its order, the
-- first of a strict endpoint, and what goes in any order. One index for all, by endpoint and sequence, was passed over by a planner that did not know the table yet.
DROP INDEX webhook_deliveries_sequence;
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (sequence, endpoint_id, position) WHERE state = 1 AND sequence > 0;
CREATE INDEX webhook_deliveries_strict ON webhook_deliveries (endpoint_id, position, number) WHERE state = 1 AND sequence = 0;
CREATE INDEX webhook_deliveries_free ON webhook_deliveries (endpoint_id, sequence) WHERE state = 1 AND sequence < 0;

-- +goose Down
DROP INDEX webhook_deliveries_free;
DROP INDEX webhook_deliveries_strict;
DROP INDEX webhook_deliveries_order;
CREATE INDEX webhook_deliveries_sequence ON webhook_deliveries (endpoint_id, sequence, position) WHERE state = 1;
