-- +goose Up

-- The same as in migrations/postgres, where each column is explained. Times are milliseconds since 1970.
CREATE TABLE webhook_endpoints (
    id            text PRIMARY KEY NOT NULL,
    url           text NOT NULL,
    title         text NOT NULL,
    secret        text NOT NULL,
    old_secret    text,
    old_until     integer,
    types         text NOT NULL,
    sales         text NOT NULL,
    strict        integer NOT NULL CHECK (strict IN (0, 1)),
    state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    reason        text NOT NULL DEFAULT '',
    failures      integer NOT NULL DEFAULT 0,
    failing_since integer,
    hold_until    integer,
    created_at    integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    created_by    text NOT NULL
) STRICT;

CREATE TABLE webhook_deliveries (
    number       integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    id           text NOT NULL UNIQUE,
    endpoint_id  text NOT NULL,
    position     integer NOT NULL,
    sequence         integer NOT NULL,
    type         text NOT NULL,
    body         text NOT NULL,
    state        integer NOT NULL DEFAULT 1 CHECK (state IN (1, 2, 3)),
    attempts     integer NOT NULL DEFAULT 0,
    fence        integer NOT NULL DEFAULT 0,
    due_at       integer NOT NULL,
    leased_until integer,
    created_at   integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    ended_at     integer
) STRICT;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, due_at, position) WHERE state = 1;
CREATE INDEX webhook_deliveries_sequence ON webhook_deliveries (endpoint_id, sequence, position) WHERE state = 1;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, number) WHERE state = 3;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, number);
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (ended_at) WHERE state = 2;

CREATE TABLE webhook_attempts (
    delivery_id text NOT NULL,
    number      integer NOT NULL,
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    ms          integer NOT NULL,
    status      integer NOT NULL,
    error       text NOT NULL,
    answer      text NOT NULL,
    PRIMARY KEY (delivery_id, number)
) STRICT;

-- +goose Down
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
