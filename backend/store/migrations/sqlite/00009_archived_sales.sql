-- +goose Up

ALTER TABLE sales ADD COLUMN archived integer NOT NULL DEFAULT 0 CHECK (archived IN (0, 1));
UPDATE sales SET archived = 1 WHERE id IN (SELECT sale_id FROM archives);
