-- +goose Up

-- Numbers that must not go back with Redis. fence: given to each rebuild of Redis when it begins. generation: the fence of the rebuild that has last
-- read the orders; what was taken from an older Redis may not be written any more.
CREATE TABLE counters (
    name text COLLATE "C" PRIMARY KEY,
    n    bigint NOT NULL
);
INSERT INTO counters (name, n) VALUES ('fence', 0), ('generation', 0);

-- The journals of accepted orders, each of one backend: when it was last heard of, and up to which generation its orders are in Redis.
CREATE TABLE journals (
    id      text COLLATE "C" PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now(),
    adopted bigint NOT NULL
);

CREATE INDEX desk_log_target ON desk_log (target, id);

-- +goose Down
DROP INDEX desk_log_target;
DROP TABLE journals;
DROP TABLE counters;
