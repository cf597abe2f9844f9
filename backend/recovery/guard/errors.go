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
	// ErrForeign reports that the data has begun to belong to another deployment since its owner was checked.
	ErrForeign error = stateError("the data in Redis belongs to another deployment")
)

// stateError does not wrap sale.ErrUnavailable: its callers add the text of that, and go-redis returns the wrapped
// error in place of the error of a new connection.
type stateError string

func (e stateError) Error() string      { return string(e) }
func (stateError) Is(target error) bool { return target == sale.ErrUnavailable }

// ScriptError returns the error of a script of a rebuild or a move, which returns "ok", or the state in which it
// changes nothing.
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
