-- +goose Up

-- The same as in migrations/postgres, where each column is explained. orders is a JSON array. Times are milliseconds since 1970.
-- AUTOINCREMENT: a seq is never given twice, though the table gets empty.
CREATE TABLE outbox (
    seq      integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    kind     integer NOT NULL CHECK (kind IN (1, 2, 3)),
    orders   text NOT NULL CHECK (json_array_length(orders) >= 1),
    at       integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    position integer
) STRICT;
CREATE INDEX outbox_position ON outbox (position, seq);

INSERT INTO counters (name, n) VALUES ('event', 0);

CREATE TABLE event_groups (
    name       text PRIMARY KEY NOT NULL,
    start      integer NOT NULL,
    created_at integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer))
) STRICT;

CREATE TABLE event_dead (
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
CREATE INDEX event_dead_retry ON event_dead (group_name, position) WHERE retry = 1;

CREATE TABLE points (
    order_id integer NOT NULL,
    kind     integer NOT NULL CHECK (kind IN (1, 3)),
    buyer    text NOT NULL,
    points   integer NOT NULL,
    at       integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    PRIMARY KEY (order_id, kind)
) STRICT;
CREATE INDEX points_buyer ON points (buyer, points);

-- +goose Down
DROP TABLE points;
DROP TABLE event_dead;
DROP TABLE event_groups;
DELETE FROM counters WHERE name = 'event';
DROP TABLE outbox;
