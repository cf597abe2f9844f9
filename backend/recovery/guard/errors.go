package guard

import (
	"fmt"

	"sluice/backend/sale"
)

// The states in which the stock of a shard is not available. Each error matches sale.ErrUnavailable.
var (
	// ErrUnverified is the error of every guarded command while the data in Redis is not verified.
	ErrUnverified error = stateError("the data in Redis is not verified")
	// ErrBusy reports that another process rebuilds or moves the shard.
	ErrBusy error = stateError("a rebuild or a move of the shard is in progress: try again when it has ended")
	// ErrFenced reports that a later rebuild or move of the shard has begun, or that Redis was emptied.
	ErrFenced error = stateError("another rebuild or move of the shard has begun")
	// ErrForeign reports that another deployment has taken over the data since its owner was checked.
	ErrForeign error = stateError("the data in Redis belongs to another deployment")
	// ErrKeyType reports keys of a type that a rebuild cannot read. Each rebuild fails until an operator renames them.
	ErrKeyType error = stateError("keys in Redis have the wrong type")
)

// stateError matches sale.ErrUnavailable but does not wrap it. Callers add the text of sale.ErrUnavailable, which would
// then be in the message twice. If OnConnect returned a wrapped error, go-redis would return only the inner one.
type stateError string

func (e stateError) Error() string      { return string(e) }
func (stateError) Is(target error) bool { return target == sale.ErrUnavailable }

// ScriptError returns the error for the result of a script of a rebuild or a move: nil for "ok". Any other result is
// the state of the shard because of which the script has changed nothing.
func ScriptError(script, result string, err error) error {
	switch {
	case err != nil:
		return sale.Unavailable(err)
	case result == "ok":
		return nil
	case result == "fenced":
		return ErrFenced
	case result == "unverified":
		return ErrUnverified
	case result == "foreign":
		return ErrForeign
	}
	return fmt.Errorf("script %s returned %q", script, result)
}
