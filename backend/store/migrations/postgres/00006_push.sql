-- +goose Up

-- Where a buyer's browsers want to be told of orders (Web Push). The endpoint is a capability: whoever knows it and the keys may write to that browser.
CREATE TABLE push_subscriptions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    buyer      text COLLATE "C" NOT NULL,
    endpoint   text COLLATE "C" NOT NULL UNIQUE,
    p256dh     text NOT NULL,
    auth       text NOT NULL,
    lang       text NOT NULL,
    failures   integer NOT NULL DEFAULT 0, -- messages in a row that its push service refused
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX push_subscriptions_buyer ON push_subscriptions (buyer, id);

-- What is to be sent: each event once over each channel, and for the channel web once to each subscription (target). due_at is when it is sent next, or when whoever
-- has leased it is taken for gone; lease is by whom. A row that is settled stays for a while, so that an event which is told again is not sent again.
CREATE TABLE push_deliveries (
    event_id   text COLLATE "C" NOT NULL,
    channel    text COLLATE "C" NOT NULL,
    target     bigint NOT NULL DEFAULT 0,
    body       text NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    due_at     timestamptz NOT NULL DEFAULT now(),
    lease      text,
    settled_at timestamptz,
    PRIMARY KEY (event_id, channel, target)
);
CREATE INDEX push_deliveries_due ON push_deliveries (channel, due_at) WHERE settled_at IS NULL;
CREATE INDEX push_deliveries_settled ON push_deliveries (settled_at) WHERE settled_at IS NOT NULL;

-- A buyer's cancelled orders, to be shown with the others. Those that are not cancelled are found by orders_place, sale by sale: an index of all
-- orders by buyer would cost every batch that writes orders.
CREATE INDEX orders_cancelled ON orders (buyer, id) WHERE status = 'cancelled';

-- +goose Down
DROP INDEX orders_cancelled;
DROP TABLE push_deliveries;
DROP TABLE push_subscriptions;
