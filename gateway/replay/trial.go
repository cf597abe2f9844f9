package replay

import (
	"context"
	"errors"
	"io"

	"sluice/gateway/policy"
)

const (
	// trialBuckets bounds the memory of a replay in a backend, which also serves buyers.
	trialBuckets = 1 << 17
	trialKeys    = 1 << 16
)

// Names of the policies in the findings and reports of a Trial.
const (
	candidate = "new policy"
	compared  = "current policy"
)

// ErrBusy is returned while a Trial replays another log.
var ErrBusy = errors.New("another replay is in progress: repeat the request when it has ended")

// Trial checks and replays policies that an admin uploads. It is safe for concurrent use, and replays one log at a
// time.
type Trial struct{ slot chan struct{} }

// NewTrial returns a Trial.
func NewTrial() *Trial { return &Trial{slot: make(chan struct{}, 1)} }

// checked is the result of Check.
type checked struct {
	Rules    []trialRule     `json:"rules"` // none if there are errors
	Errors   policy.Findings `json:"errors"`
	Warnings policy.Findings `json:"warnings"`
}

// trialRule describes a rule of a policy.
type trialRule struct {
	Name       string `json:"name"`
	Key        string `json:"key"`
	Rate       string `json:"rate"` // such as "20r/s"
	Burst      int    `json:"burst"`
	Match      string `json:"match"` // method and path; "": all requests
	Mode       string `json:"mode"`
	OnError    string `json:"on_error"`
	Delay      bool   `json:"delay"`
	IPv6Prefix int    `json:"ipv6_prefix,omitempty"`
	Scope      string `json:"scope"`
}

// Check returns the rules, errors and warnings of the text of a policy. It is encoded as JSON.
func (t *Trial) Check(source string) any {
	result := checked{Rules: []trialRule{}, Errors: policy.Findings{}, Warnings: policy.Findings{}}
	p, warnings, err := policy.InspectSource(candidate, []byte(source), policy.Sizing{})
	if err != nil {
		result.Errors, _ = errors.AsType[policy.Findings](err)
		return result
	}
	result.Warnings = append(result.Warnings, warnings...)
	for _, r := range p.Rules {
		result.Rules = append(result.Rules, trialRule{
			Name: r.Name, Key: string(r.Key), Rate: r.Rate.String(), Burst: r.Burst,
			Match: r.Match.String(), Mode: string(r.Mode), OnError: string(r.OnError), Delay: r.Delay,
			IPv6Prefix: r.IPv6Prefix, Scope: r.Scope(),
		})
	}
	return result
}

// Replay evaluates an access log, as text or gzip, with a policy, and with a second one unless against is empty. The
// result is a *Report. Its error is policy.Findings, ErrBusy, one that wraps ErrNothing, or that of ctx.
func (t *Trial) Replay(ctx context.Context, source, against string, log io.Reader) (any, error) {
	select {
	case t.slot <- struct{}{}:
		defer func() { <-t.slot }()
	default:
		return nil, ErrBusy
	}
	cfg := Config{
		NewName: candidate, OldName: compared, Buckets: trialBuckets, Keys: trialKeys,
		Inputs: []Input{{Name: "access log", Reader: log}},
	}
	var err error
	if cfg.New, err = policy.Parse(candidate, []byte(source)); err != nil {
		return nil, err
	}
	if against != "" {
		if cfg.Old, err = policy.Parse(compared, []byte(against)); err != nil {
			return nil, err
		}
	}
	report, err := Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return report, nil
}
