-- +goose Up

-- Keys compare by byte (COLLATE "C"), which is faster than the order of a language and independent of the server.
-- fillfactor: every batch of orders updates sold. Free space on the page lets PostgreSQL keep the new version of the row
-- there, without touching an index.
CREATE TABLE sales (
    id           text COLLATE "C" PRIMARY KEY,
    title        text NOT NULL,
    price_amount bigint NOT NULL CHECK (price_amount >= 0),
    currency     text NOT NULL,
    stock        bigint NOT NULL,
    sold         bigint NOT NULL DEFAULT 0, -- orders that are not cancelled
    per_buyer    integer NOT NULL CHECK (per_buyer >= 1),
    opens_at     timestamptz NOT NULL,
    closes_at    timestamptz,
    switch       text NOT NULL CHECK (switch IN ('on', 'paused', 'closed')),
    hold_ms      bigint NOT NULL DEFAULT 0 CHECK (hold_ms >= 0), -- how long an order may stay unpaid; 0: no limit
    version      bigint NOT NULL CHECK (version >= 1),
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- Prevents overselling independently of Redis: the statement that counts the orders of a batch fails.
    CONSTRAINT sales_not_oversold CHECK (0 <= sold AND sold <= stock)
) WITH (fillfactor = 50);
CREATE INDEX sales_newest ON sales (created_at, id);

-- sale_id has no foreign key, because the check would look up and lock the sale once per order. The batch that inserts
-- orders also updates their sale, and fails if it does not exist.
-- return_number tracks the unit of a cancelled order. NULL: the unit is not back in Redis. n: it came back as the sale's
-- return n. 0: Redis held no unit of the order. -1: no unit returns from here, because the order is not cancelled, or it
-- died in the queue and its unit returns with its dead letter.
CREATE TABLE orders (
    id            bigint PRIMARY KEY,
    sale_id       text COLLATE "C" NOT NULL,
    buyer         text COLLATE "C" NOT NULL,
    slot          integer NOT NULL CHECK (slot >= 1),
    serial        bigint NOT NULL CHECK (serial >= 1),
    status        text NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'paid', 'cancelled')),
    -- The upper 31 bits of an order id are the seconds since 2020-01-01.
    created_at    timestamptz GENERATED ALWAYS AS (to_timestamp((id >> 32) + 1577836800)) STORED,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    due_at        timestamptz, -- end of the hold, set when the order becomes a row; NULL: no limit
    reference     text, -- of the payment
    cancelled_by  text,
    cancel_reason text,
    return_number bigint DEFAULT -1
);
-- Enforces the limit per buyer: one order per slot.
CREATE UNIQUE INDEX orders_slot ON orders (sale_id, buyer, slot) WHERE status <> 'cancelled';
-- For the audit, which counts rows up to a serial, and for reading a sale's orders in pages. Not unique: after a rebuild of
-- Redis the serials of a sale may start again.
CREATE INDEX orders_serial ON orders (sale_id, serial) WHERE status <> 'cancelled';
CREATE INDEX orders_due ON orders (due_at) WHERE status = 'created' AND due_at IS NOT NULL;
CREATE INDEX orders_returning ON orders (id) WHERE status = 'cancelled' AND return_number IS NULL;
-- For the audit, which counts the units of a sale that returned after an instant, or not yet.
CREATE INDEX orders_returned ON orders (sale_id, return_number) WHERE status = 'cancelled';
-- A buyer's cancelled orders. The others are found by orders_slot, sale by sale: an index of all orders by buyer would slow
-- down every batch that inserts orders.
CREATE INDEX orders_cancelled ON orders (buyer, id) WHERE status = 'cancelled';

-- Aborts the statement that inserts a batch. Its error code has the class of violated constraints.
-- +goose StatementBegin
CREATE FUNCTION sluice_reject(reason text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', reason USING ERRCODE = 'integrity_constraint_violation';
END
$$;
-- +goose StatementEnd

-- The request key makes a repeated restock idempotent. A restock without a key is recorded too.
CREATE TABLE restocks (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sale_id     text COLLATE "C" NOT NULL REFERENCES sales (id),
    request_key text COLLATE "C",
    units       bigint NOT NULL CHECK (units >= 1),
    at          timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sale_id, request_key)
);

-- The settled callbacks of the payment provider. A repeated callback has the same outcome.
CREATE TABLE payments (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    callback_id text COLLATE "C" NOT NULL UNIQUE,
    digest      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    order_id    bigint NOT NULL,
    sale_id     text COLLATE "C" NOT NULL,
    event       text NOT NULL CHECK (event IN ('succeeded', 'failed')),
    amount      bigint NOT NULL,
    currency    text NOT NULL,
    reference   text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('paid', 'failed', 'order_cancelled', 'mismatch', 'paid_already')),
    refund      integer NOT NULL CHECK (refund IN (0, 1)), -- 1: money was received that paid no order
    settled_at  timestamptz, -- when an admin settled the refund
    settled_by  text,
    note        text
);
CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_refund ON payments (id) WHERE refund = 1 AND settled_at IS NULL;

CREATE TABLE admin_log (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL DEFAULT ''
);
CREATE INDEX admin_log_target ON admin_log (target, id);
CREATE INDEX admin_log_actor ON admin_log (actor, id);
CREATE INDEX admin_log_action ON admin_log (action, id);

-- fence: the number of the last rebuild of Redis that began. generation: the fence of the last rebuild that has read the
-- orders; orders read from an older Redis may not be written. event_position: the last position in the stream of events.
-- shards, once it is claimed: the number of shards.
CREATE TABLE counters (
    name text COLLATE "C" PRIMARY KEY,
    n    bigint NOT NULL
);
INSERT INTO counters (name, n) VALUES ('fence', 0), ('generation', 0), ('event_position', 0);

-- The journal of each backend: its last heartbeat, and the latest generation of Redis in which its orders are restored.
CREATE TABLE journals (
    id         text COLLATE "C" PRIMARY KEY,
    seen_at    timestamptz NOT NULL DEFAULT now(),
    generation bigint NOT NULL
);

-- Changes of orders that other services receive, appended by the transactions that make them: one row for all orders
-- that a transaction changed in the same way, because a row per order would slow down a batch of orders by a third. seq
-- orders only rows whose transactions were not concurrent. The relay assigns position later: it is the position of the
-- row's last order in the stream of events, so the row has the positions from position - cardinality(orders) + 1. A row
-- is deleted when every group has handled it.
CREATE TABLE outbox (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     smallint NOT NULL CHECK (kind IN (1, 2, 3)), -- created, paid, cancelled
    orders   bigint[] NOT NULL CHECK (cardinality(orders) >= 1),
    at       timestamptz NOT NULL DEFAULT now(),
    position bigint
);
CREATE INDEX outbox_position ON outbox (position, seq);

-- The groups that consume the stream. start_position: the last position before the group's first event.
CREATE TABLE event_groups (
    name           text COLLATE "C" PRIMARY KEY,
    start_position bigint NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);

-- Events that a group failed to handle. retry: an admin requested a retry. leased_until: by the consumer that retries it.
CREATE TABLE event_dead_letters (
    group_name   text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    position     bigint NOT NULL,
    body         text NOT NULL,
    reason       text NOT NULL,
    deliveries   bigint NOT NULL,
    died_at      timestamptz NOT NULL DEFAULT now(),
    retry        integer NOT NULL DEFAULT 0 CHECK (retry IN (0, 1)),
    leased_until timestamptz,
    PRIMARY KEY (group_name, event_id)
);
CREATE INDEX event_dead_letters_retry ON event_dead_letters (group_name, position) WHERE retry = 1;

-- The points of an order (kind 1) and their revocation (kind 3), once each, in any order of the events. An order that
-- has both counts nothing.
CREATE TABLE points (
    order_id bigint NOT NULL,
    kind     smallint NOT NULL CHECK (kind IN (1, 3)), -- as in outbox
    buyer    text COLLATE "C" NOT NULL,
    points   bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, kind)
);
CREATE INDEX points_buyer ON points (buyer) INCLUDE (points);

-- types and sales filter an endpoint's events; values are separated by spaces, empty: all. strict: its deliveries are sent
-- one at a time in the order of their positions, otherwise one at a time per order. old_secret also signs, until old_until.
-- failures: in a row. hold_until: no delivery is sent before.
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

-- One row for each event that an endpoint receives. id is the webhook-id. sequence: deliveries of one endpoint and sequence
-- are sent in the order of their positions (the order's id; 0 for all deliveries of a strict endpoint; below 0: in any
-- order). state: 1 waiting, 2 delivered, 3 given up. attempts: since the row began to wait. fence: the number of the last
-- lease, and of its attempt. Rows of a removed endpoint are deleted later.
CREATE TABLE webhook_deliveries (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text COLLATE "C" NOT NULL UNIQUE,
    endpoint_id  text COLLATE "C" NOT NULL,
    position     bigint NOT NULL,
    sequence     bigint NOT NULL,
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
-- Waiting deliveries are looked up in three ways: those ahead in the sequence of an order, the first of a strict endpoint,
-- and those without an order. Each has an index that does not serve the others. With one index by endpoint and sequence,
-- PostgreSQL chose another plan as long as it had no statistics of the table.
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (sequence, endpoint_id, position) WHERE state = 1 AND sequence > 0;
CREATE INDEX webhook_deliveries_strict ON webhook_deliveries (endpoint_id, position, number) WHERE state = 1 AND sequence = 0;
CREATE INDEX webhook_deliveries_unordered ON webhook_deliveries (endpoint_id, sequence) WHERE state = 1 AND sequence < 0;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, number) WHERE state = 3;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, number);
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (ended_at) WHERE state = 2;

-- The outcome of each attempt. status: of HTTP, 0 without a response. response: the beginning of its body.
CREATE TABLE webhook_attempts (
    delivery_id text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    duration_ms bigint NOT NULL,
    status      integer NOT NULL,
    error       text NOT NULL,
    response    text NOT NULL,
    PRIMARY KEY (delivery_id, number)
);

-- The browsers that receive a buyer's notifications (Web Push). An endpoint is a capability: with it and the keys, anyone
-- can send notifications to that browser.
CREATE TABLE web_push_subscriptions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    buyer      text COLLATE "C" NOT NULL,
    endpoint   text COLLATE "C" NOT NULL UNIQUE,
    p256dh     text NOT NULL,
    auth       text NOT NULL,
    lang       text NOT NULL,
    failures   integer NOT NULL DEFAULT 0, -- refusals by its push service in a row
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX web_push_subscriptions_buyer ON web_push_subscriptions (buyer, id);

-- Web Push messages to be sent: each event once to each subscription of its buyer. due_at: the next attempt, or the end of
-- the lease of leased_by. A settled row is kept for a while, so that an event which is delivered again is not sent again.
CREATE TABLE notifications (
    event_id        text COLLATE "C" NOT NULL,
    subscription_id bigint NOT NULL,
    body            text NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    due_at          timestamptz NOT NULL DEFAULT now(),
    leased_by       text,
    settled_at      timestamptz,
    PRIMARY KEY (event_id, subscription_id)
);
CREATE INDEX notifications_due ON notifications (due_at) WHERE settled_at IS NULL;
CREATE INDEX notifications_settled ON notifications (settled_at) WHERE settled_at IS NOT NULL;

-- +goose Down
DROP TABLE notifications;
DROP TABLE web_push_subscriptions;
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
DROP TABLE points;
DROP TABLE event_dead_letters;
DROP TABLE event_groups;
DROP TABLE outbox;
DROP TABLE journals;
DROP TABLE counters;
DROP TABLE admin_log;
DROP TABLE payments;
DROP TABLE restocks;
DROP FUNCTION sluice_reject;
DROP TABLE orders;
DROP TABLE sales;
