-- +goose Up

-- The number of segments of a sale, chosen when the sale is created. 1: the sale lives in one shard and has no rows in
-- segments.
ALTER TABLE sales ADD COLUMN spread integer NOT NULL DEFAULT 1 CHECK (spread BETWEEN 1 AND 1000);

-- The units that each segment of a sale owns. Their sum is the stock of the sale. version grows with every change of
-- units, and whenever the segment is loaded into Redis: a transfer that began at an older version is not committed.
CREATE TABLE segments (
    sale_id text COLLATE "C" NOT NULL REFERENCES sales (id) ON DELETE CASCADE,
    segment integer NOT NULL CHECK (segment >= 0),
    units   bigint NOT NULL CHECK (units >= 0),
    version bigint NOT NULL CHECK (version >= 1),
    PRIMARY KEY (sale_id, segment)
) WITH (fillfactor = 50);
