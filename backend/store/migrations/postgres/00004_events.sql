-- +goose Up

-- Changes of orders that other services have to hear of, written by the transactions that make them: one row for all orders that one transaction
-- changed alike, because a row for each would cost a batch of orders a third of its speed. seq only orders rows whose transactions saw each
-- other. position is given by the relay, later: the place of the row's last order in the stream of events, so the row has the positions from
-- position - cardinality(orders) + 1 on. A row goes when every group is done with it.
CREATE TABLE outbox (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     smallint NOT NULL CHECK (kind IN (1, 2, 3)), -- created, paid, cancelled
    orders   bigint[] NOT NULL CHECK (cardinality(orders) >= 1),
    at       timestamptz NOT NULL DEFAULT now(),
    position bigint
);
CREATE INDEX outbox_position ON outbox (position, seq);

-- The last position that was given.
INSERT INTO counters (name, n) VALUES ('event', 0);

-- The groups that read the stream. start: the last position that a group does not want.
CREATE TABLE event_groups (
    name       text COLLATE "C" PRIMARY KEY,
    start      bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Events that a group could not handle. retry: a person wants it run again. leased_until: by the consumer that does.
CREATE TABLE event_dead (
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
CREATE INDEX event_dead_retry ON event_dead (group_name, position) WHERE retry = 1;

-- What an order was credited (kind 1), and that it is taken back (kind 3): once each, in whatever order the events come. An order that has both counts nothing.
CREATE TABLE points (
    order_id bigint NOT NULL,
    kind     smallint NOT NULL CHECK (kind IN (1, 3)), -- as in outbox
    buyer    text COLLATE "C" NOT NULL,
    points   bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (order_id, kind)
);
CREATE INDEX points_buyer ON points (buyer) INCLUDE (points);

-- +goose Down
DROP TABLE points;
DROP TABLE event_dead;
DROP TABLE event_groups;
DELETE FROM counters WHERE name = 'event';
DROP TABLE outbox;
