<?php
// Buys a unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... php buy.php SALE [KEY]
declare(strict_types=1);

/** Sends a request, retries after 429, 502, 503, 504 and lost responses, and returns status and JSON. */
function request(string $method, string $path, array $headers = [], int $seconds = 10): array
{
    for ($attempt = 1; ; $attempt++) {
        $wait = min(10, 0.25 * 2 ** ($attempt - 1)) * (0.5 + mt_rand() / mt_getrandmax() / 2);
        $stream = @fopen(rtrim(getenv('SLUICE_URL'), '/') . $path, 'r', false, stream_context_create(['http' => [
            'method' => $method, 'timeout' => $seconds, 'ignore_errors' => true, 'follow_location' => 0,
            'header' => ['Authorization: Bearer ' . getenv('SLUICE_TOKEN'), ...$headers],
        ]]));
        $head = $stream ? stream_get_meta_data($stream)['wrapper_data'] : [];
        $answer = $stream ? json_decode(stream_get_contents($stream), true) : null; // null: no response, or it was cut
        $status = preg_match('~^HTTP/\S+ (\d+)~', $head[0] ?? '', $line) ? (int) $line[1] : 0;
        if ($answer !== null && (!in_array($status, [429, 502, 503, 504], true) || $attempt === 8)) {
            return [$status, $answer];
        }
        if ($attempt === 8) {
            // The server may have accepted the order. A retry with the same key is safe.
            throw new RuntimeException('no response');
        }
        foreach ($head as $header) {
            if (preg_match('~^Retry-After: (\d+)$~i', $header, $after)) {
                $wait = (int) $after[1] + mt_rand() / mt_getrandmax() / 4;
            }
        }
        fprintf(STDERR, "%s; retry in %.1f s\n", $status < 429 ? 'no response, or it was cut' : "status $status", $wait);
        usleep((int) ($wait * 1e6));
    }
}

if ($argc < 2 || !getenv('SLUICE_URL') || !getenv('SLUICE_TOKEN')) {
    fwrite(STDERR, "usage: SLUICE_URL=... SLUICE_TOKEN=... php buy.php SALE [KEY]\n");
    exit(2);
}
$sale = $argv[1];
$key = $argv[2] ?? bin2hex(random_bytes(16)); // a retry with the same key returns the same order
[$status, $bought] = request('POST', '/v1/sales/' . rawurlencode($sale) . '/orders', ["Idempotency-Key: \"$key\"", 'Content-Length: 0']);
if ($status !== 202) {
    fwrite(STDERR, "$bought[code]: $bought[detail]\n");
    exit(1);
}
do {
    [$status, $order] = request('GET', "/v1/orders/$bought[order_id]?wait=25s", [], 40);
    if ($status !== 200) {
        fwrite(STDERR, "$order[code]: $order[detail]\n");
        exit(1);
    }
} while ($order['status'] === 'queued' && sleep(1) === 0);
echo "$bought[order_id] $order[status]\n";
