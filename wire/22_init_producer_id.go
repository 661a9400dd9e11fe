package wire

import "github.com/weirmq/weir/wire/codec"

// KeyInitProducerID is the API that gives a producer its id and epoch.
//
// Version 2 is flexible, 3 lets a producer keep its id after an error, 4 may
// answer PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.
const KeyInitProducerID Key = 22

// InitProducerIDRequest asks for a producer id.
type InitProducerIDRequest struct {
	TransactionalID      *string // nil for an idempotent producer without transactions
	TransactionTimeoutMs int32
	ProducerID           int64 // from 3, -1 for a new one
	ProducerEpoch        int16 // from 3, -1 for a new one
}

// InitProducerIDResponse answers an InitProducerIDRequest.
type InitProducerIDResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code
	ProducerEpoch  int16
	ProducerID     int64 // -1 with an error
}

// NewInitProducerIDRequest holds the schema's defaults.
func NewInitProducerIDRequest() *InitProducerIDRequest {
	return &InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1}
}

// NewInitProducerIDResponse holds the schema's defaults.
func NewInitProducerIDResponse() *InitProducerIDResponse {
	return &InitProducerIDResponse{ProducerID: -1}
}

// Key is KeyInitProducerID.
func (*InitProducerIDRequest) Key() Key { return KeyInitProducerID }

// Key is KeyInitProducerID.
func (*InitProducerIDResponse) Key() Key { return KeyInitProducerID }

func (r *InitProducerIDRequest) code(c *codec.Coder) {
	c.NullableString(&r.TransactionalID)
	c.Int32(&r.TransactionTimeoutMs)
	if c.Version() >= 3 {
		c.Int64(&r.ProducerID)
		c.Int16(&r.ProducerEpoch)
	}
	c.Tags()
}

func (r *InitProducerIDResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.Int64(&r.ProducerID)
	c.Int16(&r.ProducerEpoch)
	c.Tags()
}
