package elect

import (
	"fmt"

	"github.com/weirmq/weir/fsm"
)

// CheckISR tells, before it costs an entry of the Raft log, whether Apply would
// refuse an ISR change that this incarnation proposes. Apply checks again: the
// Image may move in between.
func CheckISR(im *fsm.Image, proposer fsm.Member, c fsm.ISRChange) error {
	if err := im.CheckISR(proposer, c); err != nil {
		return fmt.Errorf("ISR change of %x-%d by broker %d: %w", c.TP.Topic, c.TP.Partition, proposer.ID, err)
	}
	return nil
}
