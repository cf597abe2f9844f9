-- +goose Up

-- The same tables as in migrations/postgres, with the same names. Times are milliseconds since 1970.
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
    version      integer NOT NULL CHECK (version >= 1),
    created_at   integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    -- The last guard against overselling, whatever Redis believes: the statement that counts orders fails here.
    CONSTRAINT sales_not_oversold CHECK (0 <= sold AND sold <= stock)
) STRICT;

-- No foreign key to sales: the batch that inserts orders updates their sale anyway and fails when there is none.
CREATE TABLE orders (
    id           integer PRIMARY KEY NOT NULL,
    sale_id      text NOT NULL,
    buyer        text NOT NULL,
    nth          integer NOT NULL CHECK (nth >= 1),
    serial       integer NOT NULL CHECK (serial >= 1),
    status       text NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'paid', 'cancelled')),
    -- The seconds since 2020-01-01 are the upper 31 bits of an order id.
    created_at   integer GENERATED ALWAYS AS (((id >> 32) + 1577836800) * 1000) VIRTUAL,
    updated_at   integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    cancelled_by text,
    note         text
) STRICT;

-- One buyer holds a place of a sale once. This is what "one per buyer" finally rests on.
CREATE UNIQUE INDEX orders_place ON orders (sale_id, buyer, nth) WHERE status <> 'cancelled';

-- For the audit (how many rows up to a serial) and for reading a sale's orders in pages. Not unique: after a rebuild of
-- Redis the serials of a sale may begin anew.
CREATE INDEX orders_serial ON orders (sale_id, serial) WHERE status <> 'cancelled';

-- The request key makes a repeated restock harmless. One without a key is recorded all the same.
CREATE TABLE restocks (
    id          integer PRIMARY KEY NOT NULL,
    sale_id     text NOT NULL REFERENCES sales (id),
    request_key text,
    units       integer NOT NULL CHECK (units >= 1),
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    UNIQUE (sale_id, request_key)
) STRICT;

-- Who did what.
CREATE TABLE desk_log (
    id     integer PRIMARY KEY NOT NULL,
    at     integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    actor  text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL DEFAULT ''
) STRICT;

-- +goose Down
DROP TABLE desk_log;
DROP TABLE restocks;
DROP TABLE orders;
DROP TABLE sales;
