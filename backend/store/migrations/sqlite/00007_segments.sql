-- +goose Up

ALTER TABLE sales ADD COLUMN spread integer NOT NULL DEFAULT 1 CHECK (spread BETWEEN 1 AND 1000);

CREATE TABLE segments (
    sale_id text NOT NULL REFERENCES sales (id) ON DELETE CASCADE,
    segment integer NOT NULL CHECK (segment >= 0),
    units   integer NOT NULL CHECK (units >= 0),
    version integer NOT NULL CHECK (version >= 1),
    PRIMARY KEY (sale_id, segment)
) STRICT, WITHOUT ROWID;
