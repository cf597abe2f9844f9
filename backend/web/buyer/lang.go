package buyer

import (
	"strings"

	"golang.org/x/text/language"

	"sluice/backend/sale"
	"sluice/internal/money"
)

// Lang is a language of the pages, as a BCP 47 tag.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

var langs = []Lang{English, Chinese}

// matcher prefers the simplified Chinese texts to English for readers of traditional Chinese.
var matcher = language.NewMatcher([]language.Tag{language.English, language.Chinese, language.TraditionalChinese})

func (l Lang) other() Lang {
	if l == English {
		return Chinese
	}
	return English
}

// Language returns the requested language ("en" or "zh"), else the best match of an Accept-Language header, else
// English.
func Language(requested, accept string) Lang {
	for _, l := range langs {
		if requested == string(l) {
			return l
		}
	}
	if len(accept) > 200 { // longer than any browser sends
		return English
	}
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil || len(tags) == 0 {
		return English
	}
	_, at, _ := matcher.Match(tags...)
	return langs[min(at, len(langs)-1)]
}

// formatPrice formats an amount in minor units with the decimals of its currency, or with two if the currency is
// unknown.
func formatPrice(lang Lang, p sale.Price) string {
	if p.Amount == 0 {
		return map[Lang]string{English: "Free", Chinese: "免费"}[lang]
	}
	whole, fraction := money.Split(p.Amount, p.Currency)
	out := grouped(whole)
	if fraction != "" {
		out += "." + fraction
	}
	if lang == English {
		return out + " " + p.Currency
	}
	return p.Currency + " " + out
}

// grouped inserts thousands separators.
func grouped(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
