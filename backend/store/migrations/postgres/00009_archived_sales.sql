-- +goose Up

-- 1: the sale has a row in archives, and no order of it becomes a row. The statement that inserts orders locks the row
-- of the sale, and so reads this column as of that instant.
ALTER TABLE sales ADD COLUMN archived integer NOT NULL DEFAULT 0 CHECK (archived IN (0, 1));
UPDATE sales SET archived = 1 WHERE id IN (SELECT sale_id FROM archives);
