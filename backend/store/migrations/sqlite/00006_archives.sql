-- +goose Up

-- See the file for PostgreSQL.
CREATE TABLE archives (
    sale_id   TEXT PRIMARY KEY REFERENCES sales (id),
    orders    INTEGER NOT NULL DEFAULT 0,
    paid      INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    payments  INTEGER NOT NULL DEFAULT 0,
    begun_at  INTEGER NOT NULL,
    ended_at  INTEGER
) STRICT;

CREATE TABLE archive_parts (
    sale_id  TEXT NOT NULL REFERENCES archives (sale_id),
    part     INTEGER NOT NULL,
    file     TEXT NOT NULL,
    sha256   TEXT NOT NULL,
    orders   INTEGER NOT NULL,
    payments INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (sale_id, part)
) STRICT, WITHOUT ROWID;

CREATE INDEX orders_sale ON orders (sale_id, id);
CREATE INDEX payments_sale ON payments (sale_id, id);
