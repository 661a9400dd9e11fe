package controller

import (
	"fmt"

	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// Outcome is what became of one thing that was asked of the controller.
type Outcome struct {
	// Err is wire.None on success; Msg says what is wrong otherwise.
	Err wire.Code
	Msg string
}

// refuse is the outcome of what is not done. What was asked for may be quoted: the text is cut
// to what an answer can carry, this node's to the one that asked and that one's to a client.
func refuse(code wire.Code, format string, args ...any) Outcome {
	return Outcome{code, wire.ErrorText(fmt.Sprintf(format, args...))}
}

func (o *Outcome) code(c *codec.Coder) {
	c.Int16((*int16)(&o.Err))
	c.String(&o.Msg)
}
