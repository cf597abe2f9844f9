-- +goose Up

-- The tables and columns of migrations/postgres, where they are explained. Times are milliseconds since 1970.
CREATE TABLE sales (
    id           text PRIMARY KEY NOT NULL,
    title        text NOT NULL,
    price_amount integer NOT NULL CHECK (price_amount >= 0),
    currency     text NOT NULL,
    stock        integer NOT NULL,
    sold         integer NOT NULL DEFAULT 0,
    per_buyer    integer NOT NULL CHECK (per_buyer >= 1),
    opens_at     integer NOT NULL,
    closes_at    integer,
    switch       text NOT NULL CHECK (switch IN ('on', 'paused', 'closed')),
    hold_ms      integer NOT NULL DEFAULT 0 CHECK (hold_ms >= 0),
    version      integer NOT NULL CHECK (version >= 1),
    created_at   integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    CONSTRAINT sales_not_oversold CHECK (0 <= sold AND sold <= stock)
) STRICT;
CREATE INDEX sales_newest ON sales (created_at, id);

CREATE TABLE orders (
    id            integer PRIMARY KEY NOT NULL,
    sale_id       text NOT NULL,
    buyer         text NOT NULL,
    slot          integer NOT NULL CHECK (slot >= 1),
    serial        integer NOT NULL CHECK (serial >= 1),
    status        text NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'paid', 'cancelled')),
    created_at    integer GENERATED ALWAYS AS (((id >> 32) + 1577836800) * 1000) VIRTUAL,
    updated_at    integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    due_at        integer,
    reference     text,
    cancelled_by  text,
    cancel_reason text,
    return_number integer DEFAULT -1
) STRICT;
CREATE UNIQUE INDEX orders_slot ON orders (sale_id, buyer, slot) WHERE status <> 'cancelled';
CREATE INDEX orders_serial ON orders (sale_id, serial) WHERE status <> 'cancelled';
CREATE INDEX orders_due ON orders (due_at) WHERE status = 'created' AND due_at IS NOT NULL;
CREATE INDEX orders_returning ON orders (id) WHERE status = 'cancelled' AND return_number IS NULL;
CREATE INDEX orders_returned ON orders (sale_id, return_number) WHERE status = 'cancelled';
CREATE INDEX orders_cancelled ON orders (buyer, id) WHERE status = 'cancelled';

CREATE TABLE restocks (
    id          integer PRIMARY KEY NOT NULL,
    sale_id     text NOT NULL REFERENCES sales (id),
    request_key text,
    units       integer NOT NULL CHECK (units >= 1),
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    UNIQUE (sale_id, request_key)
) STRICT;

CREATE TABLE payments (
    id          integer PRIMARY KEY NOT NULL,
    callback_id text NOT NULL UNIQUE,
    digest      text NOT NULL,
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    order_id    integer NOT NULL,
    sale_id     text NOT NULL,
    event       text NOT NULL CHECK (event IN ('succeeded', 'failed')),
    amount      integer NOT NULL,
    currency    text NOT NULL,
    reference   text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('paid', 'failed', 'order_cancelled', 'mismatch', 'paid_already')),
    refund      integer NOT NULL CHECK (refund IN (0, 1)),
    settled_at  integer,
    settled_by  text,
    note        text
) STRICT;
CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_refund ON payments (id) WHERE refund = 1 AND settled_at IS NULL;

CREATE TABLE admin_log (
    id     integer PRIMARY KEY NOT NULL,
    at     integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    actor  text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX admin_log_target ON admin_log (target, id);
CREATE INDEX admin_log_actor ON admin_log (actor, id);
CREATE INDEX admin_log_action ON admin_log (action, id);

CREATE TABLE counters (
    name text PRIMARY KEY NOT NULL,
    n    integer NOT NULL
) STRICT;
INSERT INTO counters (name, n) VALUES ('fence', 0), ('generation', 0), ('event_position', 0);

CREATE TABLE journals (
    id         text PRIMARY KEY NOT NULL,
    seen_at    integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    generation integer NOT NULL
) STRICT;

-- orders is a JSON array. AUTOINCREMENT: a seq is never used twice, although the table becomes empty.
CREATE TABLE outbox (
    seq      integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    kind     integer NOT NULL CHECK (kind IN (1, 2, 3)),
    orders   text NOT NULL CHECK (json_array_length(orders) >= 1),
    at       integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    position integer
) STRICT;
CREATE INDEX outbox_position ON outbox (position, seq);

CREATE TABLE event_groups (
    name           text PRIMARY KEY NOT NULL,
    start_position integer NOT NULL,
    created_at     integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer))
) STRICT;

CREATE TABLE event_dead_letters (
    group_name   text NOT NULL,
    event_id     text NOT NULL,
    position     integer NOT NULL,
    body         text NOT NULL,
    reason       text NOT NULL,
    deliveries   integer NOT NULL,
    died_at      integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    retry        integer NOT NULL DEFAULT 0 CHECK (retry IN (0, 1)),
    leased_until integer,
    PRIMARY KEY (group_name, event_id)
) STRICT;
CREATE INDEX event_dead_letters_retry ON event_dead_letters (group_name, position) WHERE retry = 1;

CREATE TABLE points (
    order_id integer NOT NULL,
    kind     integer NOT NULL CHECK (kind IN (1, 3)),
    buyer    text NOT NULL,
    points   integer NOT NULL,
    at       integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    PRIMARY KEY (order_id, kind)
) STRICT;
CREATE INDEX points_buyer ON points (buyer, points);

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
    sequence     integer NOT NULL,
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
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (sequence, endpoint_id, position) WHERE state = 1 AND sequence > 0;
CREATE INDEX webhook_deliveries_strict ON webhook_deliveries (endpoint_id, position, number) WHERE state = 1 AND sequence = 0;
CREATE INDEX webhook_deliveries_unordered ON webhook_deliveries (endpoint_id, sequence) WHERE state = 1 AND sequence < 0;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, number) WHERE state = 3;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, number);
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (ended_at) WHERE state = 2;

CREATE TABLE webhook_attempts (
    delivery_id text NOT NULL,
    number      integer NOT NULL,
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    duration_ms integer NOT NULL,
    status      integer NOT NULL,
    error       text NOT NULL,
    response    text NOT NULL,
    PRIMARY KEY (delivery_id, number)
) STRICT;

-- AUTOINCREMENT: a queued notification must never find another subscription under the id of its own.
CREATE TABLE web_push_subscriptions (
    id         integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    buyer      text NOT NULL,
    endpoint   text NOT NULL UNIQUE,
    p256dh     text NOT NULL,
    auth       text NOT NULL,
    lang       text NOT NULL,
    failures   integer NOT NULL DEFAULT 0,
    created_at integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer))
) STRICT;
CREATE INDEX web_push_subscriptions_buyer ON web_push_subscriptions (buyer, id);

CREATE TABLE notifications (
    event_id        text NOT NULL,
    subscription_id integer NOT NULL,
    body            text NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    due_at          integer NOT NULL,
    leased_by       text,
    settled_at      integer,
    PRIMARY KEY (event_id, subscription_id)
) STRICT;
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
DROP TABLE orders;
DROP TABLE sales;
