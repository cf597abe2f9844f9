package notify

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"sluice/backend/events"
	"sluice/backend/sale"
)

// Lang is a language of messages. The zero value is English.
type Lang string

// Supported languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

// parseLang reads a language tag such as zh, zh-CN or en; "" is English. ok is false for all others.
func parseLang(tag string) (l Lang, ok bool) {
	main, _, _ := strings.Cut(strings.ToLower(tag), "-")
	switch Lang(main) {
	case "", English:
		return English, true
	case Chinese:
		return Chinese, true
	}
	return "", false
}

// Text is the title and body of a notification, without control characters.
type Text struct{ Title, Body string }

// texts are format strings: argument 1 is the sale, argument 2 the order.
var texts = map[Lang]map[string]Text{
	English: {
		"created":   {"Your order is in", "Order %[2]s in the sale %[1]s: your unit is reserved."},
		"paid":      {"Your payment has arrived", "Order %[2]s in the sale %[1]s is paid."},
		"cancelled": {"Your order is cancelled", "Order %[2]s in the sale %[1]s is cancelled."},
		"failed": {"Your order could not be completed", "We are sorry: order %[2]s in the sale %[1]s could not be " +
			"completed."},
	},
	Chinese: {
		"created":   {"下单成功", "您在活动 %[1]s 中的订单 %[2]s 已生成，商品已为您保留。"},
		"paid":      {"付款成功", "您在活动 %[1]s 中的订单 %[2]s 已付款。"},
		"cancelled": {"订单已取消", "您在活动 %[1]s 中的订单 %[2]s 已取消。"},
		"failed":    {"订单未能完成", "很抱歉，您在活动 %[1]s 中的订单 %[2]s 未能完成。"},
	},
}

// maxLifetime is the maximum of lifetime.
const maxLifetime = 24 * time.Hour

// lifetime returns how long an event is news for its buyer. A created order still waits for its payment, so its event
// is soon outdated. Later events remain true.
func lifetime(t events.Type) time.Duration {
	if t == events.Created {
		return time.Hour
	}
	return maxLifetime
}

// TextOf returns the notification of an event in a language; English if the language is unknown.
func TextOf(e events.Event, l Lang) Text {
	words, ok := texts[l]
	if !ok {
		words = texts[English]
	}
	kind := string(e.Status())
	if e.Type == events.Cancelled && e.Was == sale.StatusQueued { // the order had no Created event
		kind = "failed"
	}
	t := words[kind]
	return Text{t.Title, fmt.Sprintf(t.Body, plain(e.SaleID), e.OrderID)}
}

// plain removes control characters, line separators and characters that change the writing direction.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
