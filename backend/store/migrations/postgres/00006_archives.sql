-- +goose Up

-- Sales whose orders are moved to files. A sale with a row here is not in Redis. The numbers count what was removed.
-- ended_at: when no order was left; NULL: the removal is in progress.
CREATE TABLE archives (
    sale_id   text COLLATE "C" PRIMARY KEY REFERENCES sales (id),
    orders    bigint NOT NULL DEFAULT 0,
    paid      bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    payments  bigint NOT NULL DEFAULT 0,
    begun_at  timestamptz NOT NULL DEFAULT now(),
    ended_at  timestamptz
);

-- The files of an archived sale, verified before any of their rows was removed. A row that is in several parts is as in
-- the last one.
CREATE TABLE archive_parts (
    sale_id  text COLLATE "C" NOT NULL REFERENCES archives (sale_id),
    part     integer NOT NULL,
    file     text NOT NULL,
    sha256   text NOT NULL,
    orders   bigint NOT NULL,
    payments bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sale_id, part)
);

-- A sale's orders and payments in the order of their ids: lists of the console, and the archive. While an index is
-- created, rows can be read but not written. In a large database, create both with CONCURRENTLY before the upgrade.
CREATE INDEX IF NOT EXISTS orders_sale ON orders (sale_id, id);
CREATE INDEX IF NOT EXISTS payments_sale ON payments (sale_id, id);
