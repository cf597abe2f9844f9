-- +goose Up

-- The same as in migrations/postgres, where each column is explained. Times are milliseconds since 1970. AUTOINCREMENT: a delivery must never find another
-- subscription under the number of its own.
CREATE TABLE push_subscriptions (
    id         integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    buyer      text NOT NULL,
    endpoint   text NOT NULL UNIQUE,
    p256dh     text NOT NULL,
    auth       text NOT NULL,
    lang       text NOT NULL,
    failures   integer NOT NULL DEFAULT 0,
    created_at integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer))
) STRICT;
CREATE INDEX push_subscriptions_buyer ON push_subscriptions (buyer, id);

CREATE TABLE push_deliveries (
    event_id   text NOT NULL,
    channel    text NOT NULL,
    target     integer NOT NULL DEFAULT 0,
    body       text NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    due_at     integer NOT NULL,
    lease      text,
    settled_at integer,
    PRIMARY KEY (event_id, channel, target)
) STRICT;
CREATE INDEX push_deliveries_due ON push_deliveries (channel, due_at) WHERE settled_at IS NULL;
CREATE INDEX push_deliveries_settled ON push_deliveries (settled_at) WHERE settled_at IS NOT NULL;

CREATE INDEX orders_cancelled ON orders (buyer, id) WHERE status = 'cancelled';

-- +goose Down
DROP INDEX orders_cancelled;
DROP TABLE push_deliveries;
DROP TABLE push_subscriptions;
