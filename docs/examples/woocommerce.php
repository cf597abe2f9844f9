<?php
/**
 * Plugin Name: sluice
 *
 * Connects WooCommerce to a sale of sluice: sign-in, checkout, and the callback after the payment. The SKU of a product
 * is the id of its sale. Define in wp-config.php: SLUICE_URL ("https://sale.shop.example"), SLUICE_TOKEN_SECRET and
 * SLUICE_PAYMENT_SECRET, with the values of sluice.
 */

/** Returns a token for the buyer (HS256), valid for an hour. */
function sluice_token(string $buyer, string $secret, int $now): string
{
    $encode = fn (string $s): string => rtrim(strtr(base64_encode($s), '+/', '-_'), '=');
    $text = $encode('{"alg":"HS256","typ":"JWT"}') . '.' . $encode(json_encode(['sub' => $buyer, 'exp' => $now + 3600]));
    return $text . '.' . $encode(hash_hmac('sha256', $text, $secret, true));
}

/** Returns the signature of a callback (Standard Webhooks). $secret begins with "whsec_". */
function sluice_signature(string $id, int $now, string $body, string $secret): string
{
    $key = base64_decode(substr($secret, strlen('whsec_')));
    return 'v1,' . base64_encode(hash_hmac('sha256', "$id.$now.$body", $key, true));
}

if (!function_exists('add_action')) {
    return; // outside WordPress, for tests
}

/** Step 1: leads a signed-in customer back to the sale with a token. */
function sluice_login(): void
{
    $back = wp_unslash($_GET['back'] ?? '');
    if (!str_starts_with($back, SLUICE_URL . '/')) {
        wp_die('unknown sale', '', ['response' => 400]);
    }
    if (!is_user_logged_in()) {
        auth_redirect(); // and back here
    }
    $token = sluice_token((string) get_current_user_id(), SLUICE_TOKEN_SECRET, time());
    header('Cache-Control: no-store');
    wp_redirect(strtok($back, '#') . '#token=' . $token);
    exit;
}

/** Returns the total of an order in the minor unit of its currency, such as cents. */
function sluice_amount($order): int
{
    return (int) round($order->get_total() * 10 ** wc_get_price_decimals());
}

/** Step 2: makes an order of WooCommerce for an unpaid order of sluice, and leads to its payment. */
function sluice_pay(): void
{
    if (!is_user_logged_in()) {
        auth_redirect();
    }
    $id = wp_unslash($_GET['order'] ?? '');
    $token = sluice_token((string) get_current_user_id(), SLUICE_TOKEN_SECRET, time());
    $answer = wp_remote_get(SLUICE_URL . '/v1/orders/' . rawurlencode($id), [
        'redirection' => 0, 'headers' => ['Authorization' => "Bearer $token"], // no other host receives the token
    ]);
    $sold = json_decode(wp_remote_retrieve_body($answer), true);
    if (wp_remote_retrieve_response_code($answer) !== 200 || $sold['status'] !== 'created') {
        wp_die('This order does not await payment.', '', ['response' => 409]);
    }
    // Two tabs must not make two orders. MySQL releases the lock at the end of this request.
    global $wpdb;
    if ($wpdb->get_var($wpdb->prepare('SELECT GET_LOCK(%s, 10)', "sluice_$id")) === '0') {
        wp_die('Another tab opens this payment: reload this page.', '', ['response' => 503]);
    }
    $known = wc_get_orders(['meta_key' => '_sluice_order', 'meta_value' => $id, 'limit' => 1]);
    $order = $known[0] ?? wc_create_order(['customer_id' => get_current_user_id()]);
    if (!$known) {
        $order->add_product(wc_get_product(wc_get_product_id_by_sku($sold['sale_id'])), 1);
        $order->update_meta_data('_sluice_order', $id);
        $order->calculate_totals();
        $order->save();
    }
    $answer = wp_remote_get(SLUICE_URL . '/v1/sales/' . rawurlencode($sold['sale_id']));
    $sale = json_decode(wp_remote_retrieve_body($answer), true);
    // sluice would record a payment of another amount as a refund to make
    if (($sale['price'] ?? null) != ['amount' => sluice_amount($order), 'currency' => $order->get_currency()]) {
        wp_die('The total of this order is not the price of the sale.', '', ['response' => 500]);
    }
    wp_redirect($order->get_checkout_payment_url());
    exit;
}

add_action('init', function (): void {
    match ($_GET['sluice'] ?? '') {
        'login' => sluice_login(),
        'pay' => sluice_pay(),
        default => null,
    };
});

/** Step 3: reports the payment. It is repeated until sluice has recorded it. */
function sluice_report(int $order_id): void
{
    $order = wc_get_order($order_id);
    $id = $order ? $order->get_meta('_sluice_order') : '';
    if ($id === '') {
        return; // not from a sale of sluice
    }
    $body = json_encode(['type' => 'payment.succeeded', 'data' => [
        'order_id' => $id,
        'amount' => sluice_amount($order),
        'currency' => $order->get_currency(),
        'reference' => "wc-$order_id", // the id of the transaction may be set later, and repetitions must be equal
    ]]);
    $now = time();
    $answer = wp_remote_post(SLUICE_URL . '/v1/payments', ['redirection' => 0, 'body' => $body, 'headers' => [
        'Content-Type' => 'application/json',
        'webhook-id' => "wc-$order_id",
        'webhook-timestamp' => (string) $now,
        'webhook-signature' => sluice_signature("wc-$order_id", $now, $body, SLUICE_PAYMENT_SECRET),
    ]]);
    $status = (int) wp_remote_retrieve_response_code($answer); // 0: no response
    $problem = json_decode(wp_remote_retrieve_body($answer), true);
    // 422: the total has changed since the first report. A response of another server has no code.
    if (in_array($status, [400, 404, 409, 422], true) && isset($problem['code'])) {
        $order->add_order_note("sluice did not accept this payment, it may need a refund: $problem[detail]");
    } elseif ($status !== 200) {
        $pause = max(60, (int) wp_remote_retrieve_header($answer, 'retry-after'));
        wp_schedule_single_event(time() + $pause, 'sluice_report', [$order_id]);
    }
}
add_action('woocommerce_payment_complete', 'sluice_report');
add_action('sluice_report', 'sluice_report');
