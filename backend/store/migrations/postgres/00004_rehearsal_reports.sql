-- +goose Up

-- The newest reports of rehearsals. report: the JSON document of `sluice rehearse`.
CREATE TABLE rehearsal_reports (
    id        text COLLATE "C" PRIMARY KEY,
    sale_id   text COLLATE "C" NOT NULL,
    verdict   text NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    stored_by text NOT NULL,
    report    text NOT NULL
);
