-- +goose Up

-- Keys compare by byte (COLLATE "C"): faster than a language's order, and the same everywhere.
CREATE TABLE sales (
    id           text COLLATE "C" PRIMARY KEY,
    title        text NOT NULL,
    price_amount bigint NOT NULL CHECK (price_amount >= 0),
    currency     text NOT NULL,
    stock        bigint NOT NULL,
    sold         bigint NOT NULL DEFAULT 0,
    per_buyer    integer NOT NULL CHECK (per_buyer >= 1),
    opens_at     timestamptz NOT NULL,
    closes_at    timestamptz,
    switch       text NOT NULL CHECK (switch IN ('on', 'paused', 'closed')),
    version      bigint NOT NULL CHECK (version >= 1),
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- The last guard against overselling, whatever Redis believes: the statement that counts orders fails here.
    CONSTRAINT sales_not_oversold CHECK (0 <= sold AND sold <= stock)
) WITH (fillfactor = 50); -- sold changes with every batch: room for the new version on the same page, so no index is touched

-- No foreign key to sales: it would look up and lock the sale once per order, and the batch that inserts orders updates
-- their sale anyway and fails when there is none.
CREATE TABLE orders (
    id           bigint PRIMARY KEY,
    sale_id      text COLLATE "C" NOT NULL,
    buyer        text COLLATE "C" NOT NULL,
    nth          integer NOT NULL CHECK (nth >= 1),
    serial       bigint NOT NULL CHECK (serial >= 1),
    status       text NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'paid', 'cancelled')),
    -- The seconds since 2020-01-01 are the upper 31 bits of an order id.
    created_at   timestamptz GENERATED ALWAYS AS (to_timestamp((id >> 32) + 1577836800)) STORED,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    cancelled_by text,
    note         text
);

-- One buyer holds a place of a sale once. This is what "one per buyer" finally rests on.
CREATE UNIQUE INDEX orders_place ON orders (sale_id, buyer, nth) WHERE status <> 'cancelled';

-- For the audit (how many rows up to a serial) and for reading a sale's orders in pages. Not unique: after a rebuild of
-- Redis the serials of a sale may begin anew.
CREATE INDEX orders_serial ON orders (sale_id, serial) WHERE status <> 'cancelled';

-- Ends the statement that finds a batch wanting; its code is of the class of broken constraints.
-- +goose StatementBegin
CREATE FUNCTION sluice_reject(reason text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', reason USING ERRCODE = 'integrity_constraint_violation';
END
$$;
-- +goose StatementEnd

-- The request key makes a repeated restock harmless. One without a key is recorded all the same.
CREATE TABLE restocks (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sale_id     text COLLATE "C" NOT NULL REFERENCES sales (id),
    request_key text COLLATE "C",
    units       bigint NOT NULL CHECK (units >= 1),
    at          timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sale_id, request_key)
);

-- Who did what.
CREATE TABLE desk_log (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL DEFAULT ''
);

-- +goose Down
DROP TABLE desk_log;
DROP TABLE restocks;
DROP FUNCTION sluice_reject;
DROP TABLE orders;
DROP TABLE sales;
