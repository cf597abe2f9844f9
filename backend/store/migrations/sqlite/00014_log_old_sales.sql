-- +goose Up

-- See the file for PostgreSQL.
UPDATE admin_log SET sale_id = CASE
        WHEN action LIKE 'sale.%' OR action = 'rehearsal.remove' THEN target
        WHEN action = 'rehearsal.report' THEN
            coalesce((SELECT sale_id FROM rehearsal_reports AS report WHERE report.id = target), '')
        WHEN action = 'payment.settle' THEN
            coalesce((SELECT sale_id FROM payments WHERE order_id = CAST(target AS bigint) LIMIT 1), '')
        ELSE substr(detail, instr(detail, 'sale ') + 5, instr(substr(detail, instr(detail, 'sale ') + 5) || ':', ':') - 1)
    END
    WHERE sale_id = '' AND (action LIKE 'sale.%' OR action IN ('rehearsal.remove', 'rehearsal.report', 'payment.settle')
        OR action IN ('order.cancel', 'dead.retry', 'dead.drop') AND target NOT LIKE 'raw:%'
            AND (detail LIKE 'sale %' OR detail LIKE 'it %; sale %'));
