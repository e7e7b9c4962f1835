// rdma: between hosts with InfiniBand or RoCE, by libibverbs, which is loaded when there is one.
//
// A connection carries messages one way, over one to four rails. A rail joins a port here with a
// port there, by one or more reliable queue pairs. Each end has a private fifo of the same shape.
// The wire:
//
//   joining   The receiver makes its queue pairs, lets the NICs write its slots and a ring
//             of notes, and posts receive requests. Its endpoint tells the sender where all
//             that is, for each rail with its keys, and has a one-time ticket. The sender
//             makes its own queue pairs, joins them with the receiver's, and answers with
//             their numbers and the ticket. Endpoint and answer travel over the encrypted
//             control plane; nothing else is believed. The receiver joins in turn and sends
//             its first credit. From then on the sender may send. A rail that cannot be joined is
//             left out, by the answer or as a loss. A receiver that ends before it has joined
//             sends a letter without bytes, and the sender fails.
//   a plan    The connection may have ports that were planned for it (rail_ports.h). The endpoint
//             names their rails first, with their places in the plan. While one of these is in use,
//             messages take no others.
//   message   The sender's NIC writes the payload from the sender's slot straight into the
//             receiver's slot of the same index (RDMA WRITE), then a note of 24 bytes into the ring
//             (RDMA WRITE WITH IMMEDIATE, on the first queue pair of the first rail). Up to 232
//             bytes travel behind the note instead, inline: one packet. A long message is cut into
//             pieces by the rates of the ports, one for each queue pair; on all but the first the
//             piece itself brings the immediate number. A message is whole when its note and as
//             many pieces as the note says have come. Messages are committed to the receiver's fifo
//             in order.
//   notice    Immediate numbers have three bits of kind, eight of a round (see below), and 21 of a
//             number: the low bits of a message's or a call's, or a RailQuestion. Notices without
//             bytes are SENDs: a credit (the receiver's head: slots below it are free), a closing
//             notice of either end, and those about a lost rail.
//   credit    At most `window` messages are on their way that the receiver has not released. For
//             each it has posted a receive request, and the sender one for each credit, so nobody
//             finds the other's queue empty.
//   a loss    A rail whose request fails, or whose port is down or silent, is lost, and its queue
//             pairs are put into the error state, so that nothing late arrives there. The sender
//             waits until nothing is on its way over the other rails, and tells the receiver which
//             rail it has lost, and which message is the first that the NICs there have not
//             acknowledged. The receiver takes all before that: completions may be late, by up to a
//             second. Then it closes that rail as well, forgets messages that are not whole, and
//             answers with the number of the first one. The sender sends again from there, over the
//             rails that are left. A receiver that loses a rail tells the sender, which does the
//             same. Both log it.
//   round     The sender counts its losses, and says the count with its questions and messages. An
//             older question is not answered. Messages count if they are of the round that was
//             answered last: a part of a message may complete late, and the message is sent again.
//   lending   Callers may lend memory that lasts (lib/transport/lasting_memory.h). Then a message
//             does not go through the slot at that end: the sender's NIC reads it where it lies,
//             and writes it where it belongs. For each call a receiver tells the sender what it
//             lends: it writes a grant (call, address, length, keys by rail) into the sender's
//             memory, with a notice. The sender answers with a receipt, and only then comes the
//             next grant. The note of such a message says that it is in lent memory. See below.
//   the end   An end that is destroyed without an error posts a closing notice, with the number of
//             the next message; a sender if all has been acknowledged. A receiver takes all before
//             that message, which may complete late, too. RdmaFarewell keeps its queue pairs until
//             that has left. After a receiver's notice the sender may not have the NIC's last
//             acknowledgements, but knows what has come. An end that fails says nothing more here:
//             the control plane tells the peer.
//   silence   A thread that waits for long asks the peer's NIC by an empty write, which needs no
//             process there. No answer within the liveness limit is an error. Nobody asks before
//             the first credit: a NIC drops what comes until its own end has joined. A process that
//             ends takes its queue pairs along; the control plane tells of that earlier.
//
// Why lending is right:
//
//   in time   A wire takes longer than a store: it reads where a message lay, and writes where it
//             belongs, until the message is received. The proof of plans covers just that
//             (DeliveryPolicy::carried): between a message's sending and its receipt nobody else
//             writes where it lay or touches where it lands.
//   a loss    Until a message is whole its receiver does not consume it, so nothing that depends on
//             it has happened, and by the same proof it still lies where it lay. What is sent again
//             is the same bytes to the same place. A message that was whole is not sent again, and
//             of packets that a NIC repeats the peer's NIC takes none twice.
//   success   A sender's call ends when the peer's NIC has acknowledged all, so that the NIC
//             here has read it. A receiver's call ends when all its messages are whole, so
//             that nothing is on its way to its memory.
//   GPUs      A GPU may see a word of the host's before it sees what a NIC wrote to its memory
//   earlier.
//             So each NIC reads there before the receiver commits messages in such memory
//             (docs/decisions/39), and before a lost rail is closed. What one message needs is
//             done for all that are whole.
//   failure   Before a failed call returns, both ends destroy their queue pairs (Carrier::cut_off).
//             From then on the NIC reads and writes nothing of the caller's. The communicator is
//             broken anyway.
//   keys      They are kept between calls (RegistrationCache), and go before the memory does. While
//             a key is there, a peer of this communicator that ignores the grants could write with
//             it; peers are trusted as far as that, as in shared memory. A key that is gone, or was
//             never given, the NIC refuses (IBV_WC_REM_ACCESS_ERR), and the connection fails.
//
// Payload is not encrypted: the fabric is trusted, as docs/security.md says. Where the user asks
// for encryption (GYRE_TCP_SECURITY=tls), rdma reaches nobody.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

std::unique_ptr<Transport> make_rdma_transport(const TransportEnvironment& environment);

}  // namespace gyre::transport
