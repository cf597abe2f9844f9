-- +goose Up

-- Who is told of orders by HTTP. types and sales: those that it wants, separated by blanks; empty: all. strict: one delivery at a time in the order of their
-- positions, else one at a time for each order. old_secret signs too, until old_until. failures: in a row. hold_until: nothing is sent before.
CREATE TABLE webhook_endpoints (
    id            text COLLATE "C" PRIMARY KEY,
    url           text NOT NULL,
    title         text NOT NULL,
    secret        text NOT NULL,
    old_secret    text,
    old_until     timestamptz,
    types         text NOT NULL,
    sales         text NOT NULL,
    strict        integer NOT NULL CHECK (strict IN (0, 1)),
    state         text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    reason        text NOT NULL DEFAULT '',
    failures      bigint NOT NULL DEFAULT 0,
    failing_since timestamptz,
    hold_until    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text NOT NULL
);

-- What an endpoint is told: one row for each event that it wants. id is the webhook-id. sequence: deliveries of one endpoint and sequence go in the order of their
-- positions (the order's id; 0 for all of a strict endpoint; below 0: in any order). state: 1 waiting, 2 delivered, 3 given up. attempts: since it waits.
-- fence: the number of the last lease, which is the number of its attempt. leased_until: by the process that is sending it. Rows of an endpoint that is gone
-- are nobody's, and go a little later.
CREATE TABLE webhook_deliveries (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text COLLATE "C" NOT NULL UNIQUE,
    endpoint_id  text COLLATE "C" NOT NULL,
    position     bigint NOT NULL,
    sequence         bigint NOT NULL,
    type         text NOT NULL,
    body         text NOT NULL,
    state        smallint NOT NULL DEFAULT 1 CHECK (state IN (1, 2, 3)),
    attempts     integer NOT NULL DEFAULT 0,
    fence        bigint NOT NULL DEFAULT 0,
    due_at       timestamptz NOT NULL,
    leased_until timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, due_at, position) WHERE state = 1;
CREATE INDEX webhook_deliveries_sequence ON webhook_deliveries (endpoint_id, sequence, position) WHERE state = 1;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, number) WHERE state = 3;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, number);
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (ended_at) WHERE state = 2;

-- What became of each attempt. status: of HTTP, 0 without an answer. answer: the beginning of its body.
CREATE TABLE webhook_attempts (
    delivery_id text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    ms          bigint NOT NULL,
    status      integer NOT NULL,
    error       text NOT NULL,
    answer      text NOT NULL,
    PRIMARY KEY (delivery_id, number)
);

-- +goose Down
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
