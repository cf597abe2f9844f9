-- +goose Up

-- What waits is looked for in three ways, each with an index of its own that is of no use for the others: what is ahead of a delivery in the lane of its order, the
-- first of a strict endpoint, and what goes in any order. One index for all, by endpoint and lane, was passed over by a planner that did not know the table yet.
DROP INDEX webhook_deliveries_lane;
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (lane, endpoint_id, position) WHERE state = 1 AND lane > 0;
CREATE INDEX webhook_deliveries_strict ON webhook_deliveries (endpoint_id, position, number) WHERE state = 1 AND lane = 0;
CREATE INDEX webhook_deliveries_free ON webhook_deliveries (endpoint_id, lane) WHERE state = 1 AND lane < 0;

-- +goose Down
DROP INDEX webhook_deliveries_free;
DROP INDEX webhook_deliveries_strict;
DROP INDEX webhook_deliveries_order;
CREATE INDEX webhook_deliveries_lane ON webhook_deliveries (endpoint_id, lane, position) WHERE state = 1;
