package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"net/url"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

// smtpAdapter sends mails, each over a connection of its own: a mail server closes idle ones, and a flood of orders is better waited out than mailed at once.
type smtpAdapter struct {
	common
	client   *gomail.Client
	from     string // an address
	to       string // an address, with {buyer} for the buyer
	fromHost string // for message ids
}

func newSMTP(c common, s *settings, u *url.URL, _ *slog.Logger) (Adapter, error) {
	a := &smtpAdapter{common: c, to: s.take("to", buyerMark)}
	if u.Hostname() == "" || u.Opaque != "" {
		return nil, errNoHost
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return nil, errors.New("takes no path and no fragment")
	}
	from, err := mail.ParseAddress(s.take("from", ""))
	if err != nil || from.Name != "" {
		return nil, errors.New("from must be a mail address: smtp://host?from=shop@example.com")
	}
	a.from = from.Address
	_, a.fromHost, _ = strings.Cut(a.from, "@")
	if _, err := a.recipient("x@example.com"); err != nil {
		if _, err := a.recipient("x"); err != nil {
			return nil, errors.New("to must be a mail address, with {buyer} for the buyer: {buyer}, or {buyer}@example.com")
		}
	}
	options := []gomail.Option{gomail.WithTimeout(sendTimeout - sendTimeout/4), gomail.WithoutNoop()}
	switch tls := s.take("tls", ""); {
	case u.Scheme == "smtps" && tls == "":
		options = append(options, gomail.WithSSLPort(false))
	case u.Scheme == "smtp" && (tls == "" || tls == "starttls"):
		options = append(options, gomail.WithTLSPortPolicy(gomail.TLSMandatory))
	case u.Scheme == "smtp" && tls == "none" && u.User == nil:
		options = append(options, gomail.WithTLSPortPolicy(gomail.NoTLS))
	default:
		return nil, errors.New("tls must be starttls, or none for a host that is asked for no password; smtps:// needs none of it")
	}
	if port := u.Port(); port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return nil, errors.New("the port must be between 1 and 65535")
		}
		options = append(options, gomail.WithPort(n))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(u.User.Username()), gomail.WithPassword(password))
	}
	if a.client, err = gomail.NewClient(u.Hostname(), options...); err != nil {
		return nil, err
	}
	return a, nil
}

// recipient is the address for a buyer: exactly one, and nothing else than an address, whatever the buyer is called.
func (a *smtpAdapter) recipient(buyer string) (string, error) {
	to := strings.ReplaceAll(a.to, buyerMark, buyer)
	address, err := mail.ParseAddress(to)
	if err != nil || address.Name != "" || address.Address != to {
		return "", fmt.Errorf("%w: the buyer makes no mail address", ErrPermanent)
	}
	return to, nil
}

// Send is Adapter.
func (a *smtpAdapter) Send(ctx context.Context, m Message) error {
	to, err := a.recipient(m.Buyer)
	if err != nil {
		return err
	}
	text := m.Text(a.lang)
	msg := gomail.NewMsg()
	if err := errors.Join(msg.From(a.from), msg.To(to)); err != nil {
		return fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	msg.Subject(text.Title)
	msg.SetMessageIDWithValue(m.ID + "@" + a.fromHost) // the same for a copy: mail programs show one
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetDate()
	msg.SetBodyString(gomail.TypeTextPlain, text.Body+"\n")
	client, err := a.client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = a.client.CloseWithSMTPClient(client) }() // once the mail is accepted, a failing goodbye must not make a second one
	err = a.client.SendWithSMTPClient(client, msg)
	var refused *gomail.SendError
	if errors.As(err, &refused) && !refused.IsTemp() && refused.ErrorCode()/100 == 5 && aboutThisMail(refused.Reason) {
		return fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	return err
}

// aboutThisMail tells refusals of a recipient or of a text from those of the sender, whose settings somebody may mend.
func aboutThisMail(r gomail.SendErrReason) bool {
	return r == gomail.ErrSMTPRcptTo || r == gomail.ErrSMTPDataClose
}
