-- +goose Up

-- What the page of a sale shows besides its facts: the URL of an image, and Markdown. Empty: none.
ALTER TABLE sales ADD COLUMN picture text NOT NULL DEFAULT '';
ALTER TABLE sales ADD COLUMN description text NOT NULL DEFAULT '';
