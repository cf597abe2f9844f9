-- +goose Up

-- Pages of the operators' desk: sales with the newest first, and what one person did, or what was done of one kind.
CREATE INDEX sales_newest ON sales (created_at, id);
CREATE INDEX desk_log_actor ON desk_log (actor, id);
CREATE INDEX desk_log_action ON desk_log (action, id);

-- +goose Down
DROP INDEX desk_log_action;
DROP INDEX desk_log_actor;
DROP INDEX sales_newest;
