"""Streams: which work waits for a collective on a device and which does not, and what keeps its
memory.

A gate (fake_gpu) holds a stream up, and an absent rank holds up a collective. So a test can tell
work that waits from work that merely happens to be done.
"""

import datetime
import gc
import time

import pytest
import torch
import torch.distributed as dist

import fake_gpu
from ranks import DEVICES, on_ranks

DEVICE = torch.device("cuda:0")
COUNT = 5000  # of tensors whose memory is looked for: no others are of that size


def tensor(value, count=10):
    return torch.full((count,), float(value)).to(DEVICE)


def warm_up(*counts):
    """The first call of its kind may wait for all ranks: it makes their links."""
    for count in counts or (10,):
        dist.all_reduce(tensor(0, count))
    torch.accelerator.synchronize(0)


def gets_idle():
    """Whether the current stream does, by itself: within a second."""
    until = time.monotonic() + 1
    while not fake_gpu.is_idle(0) and time.monotonic() < until:
        time.sleep(0.001)
    return fake_gpu.is_idle(0)


def after_ms(count):
    return datetime.timedelta(milliseconds=count)


def tell(rank):
    """Ranks that were held up go on: by the CPU's lane, which waits for no device."""
    dist.barrier()


@on_ranks(2)
def test_an_asynchronous_call_comes_after_what_is_on_the_current_stream(rank, size):
    warm_up()
    mine, source = tensor(-1), tensor(rank + 1)
    with fake_gpu.gate():
        mine.copy_(source)  # on the stream, behind the gate
        work = dist.all_reduce(mine, async_op=True)
        assert not work.is_completed()
        assert (fake_gpu.peek(mine) == -1).all()
    work.wait()
    assert (mine == 3).all()


@on_ranks(2)
def test_wait_holds_the_current_stream_and_not_the_host(rank, size):
    warm_up()
    mine = tensor(rank + 1)
    if rank == 0:
        work = dist.all_reduce(mine, async_op=True)
        # Without the wait the stream has nothing to do.
        assert gets_idle() and not work.is_completed()
        work.wait()
        assert not fake_gpu.is_idle(0) and not work.is_completed()
        copied = mine.clone()  # behind it
        assert (fake_gpu.peek(mine) == 1).all()
        tell(rank)
    else:
        tell(rank)
        work = dist.all_reduce(mine, async_op=True)
        work.wait()
        copied = mine.clone()
    assert (copied == 3).all() and work.is_completed() and work.is_success()


@on_ranks(2)
def test_a_synchronous_call_is_on_the_current_stream(rank, size):
    warm_up()
    stream = torch.Stream(DEVICE)
    mine = tensor(rank + 1)
    torch.accelerator.synchronize(0)
    options = dist.AllreduceOptions()
    options.asyncOp = False

    def all_reduce():
        """As dist.all_reduce, but without the wait that it adds."""
        dist.group.WORLD.allreduce([mine], options)

    if rank == 0:
        with stream:
            all_reduce()
            assert not fake_gpu.is_idle(0)
        assert gets_idle()  # the other stream is not concerned
        tell(rank)
        with stream:
            assert (mine == 3).all()
    else:
        tell(rank)
        all_reduce()
        assert (mine == 3).all()


@on_ranks(2)
def test_lists_and_layouts_are_copied_in_order(rank, size):
    """What brings tensors into one block, and out of it, is on the streams as well."""
    def call(is_async):
        inputs = [tensor(-1, 6) for _ in range(2)]
        outputs = [tensor(-2, 4 + i)[::2] for i in range(2)]
        sources = [tensor(10 * rank + peer, 2 + peer) for peer in range(2)]
        with fake_gpu.gate():
            for one, source in zip(inputs, sources):
                one[::3].copy_(source[:2])
            lists = [dist.all_to_all([out[:2].contiguous() for out in outputs],
                                     [one[::3].contiguous() for one in inputs], async_op=True)]
            found = [torch.empty(2, device=DEVICE) for _ in range(2)]
            lists.append(dist.all_gather(found, inputs[0][::3], async_op=is_async))
            assert not is_async or not lists[-1].is_completed()
        for work in lists:
            if work is not None:
                work.wait()
        assert [one[0].item() for one in found] == [0, 10]
    call(True)
    call(True)
    call(False)


@on_ranks(2)
def test_the_current_device_and_stream_stay(rank, size):
    stream = torch.Stream("cuda:1")
    for device in range(DEVICES):
        torch.accelerator.set_device_index(device)
        with stream:
            before = torch.accelerator.current_device_index()
            for is_async in (False, True):
                work = dist.all_reduce(tensor(1), async_op=is_async)
                if is_async:
                    work.wait()
                    work.get_future().wait()
                dist.barrier(device_ids=[0])
                assert torch.accelerator.current_device_index() == before == 1
                assert torch.accelerator.current_stream(1) == stream
        assert torch.accelerator.current_device_index() == device
    torch.accelerator.set_device_index(0)


def check_is_kept(address):
    """What was given back would be overwritten, and given again."""
    gc.collect()
    others = [tensor(7, COUNT) for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]


@on_ranks(2)
def test_memory_stays_until_the_work_is_over_where_nobody_waits(rank, size):
    warm_up(COUNT)
    keeper = torch.zeros(COUNT, device=DEVICE)
    if rank == 0:
        mine = tensor(1, COUNT)
        address = mine.data_ptr()
        dist.all_reduce(mine, async_op=True)
        del mine
        check_is_kept(address)
        tell(rank)
    else:
        tell(rank)
        dist.all_reduce(keeper, async_op=True).wait()
        assert (keeper == 1).all()
    torch.accelerator.synchronize(0)
    dist.barrier(device_ids=[0])
    if rank == 0:
        dist.all_reduce(tensor(0))  # the next call lets go of what is over
        torch.accelerator.synchronize(0)
        taken = [torch.empty(COUNT, device=DEVICE) for _ in range(16)]
        assert address in [one.data_ptr() for one in taken]
    else:
        dist.all_reduce(tensor(0))


@on_ranks(2)
def test_memory_stays_where_results_cannot_be_copied_out(rank, size):
    """The collective is on its stream by then."""
    found = [tensor(0, COUNT) for _ in range(2)]
    dist.all_gather(found, tensor(0, COUNT))  # the first one may wait
    torch.accelerator.synchronize(0)
    if rank == 0:
        places = [torch.empty(1, device=DEVICE).expand(COUNT) for _ in range(2)]
        mine = tensor(1, COUNT)
        address = mine.data_ptr()
        with pytest.raises(RuntimeError, match="single memory location"):
            dist.all_gather(places, mine, async_op=True)
        del mine
        check_is_kept(address)
        tell(rank)
    else:
        tell(rank)
        dist.all_gather(found, tensor(2, COUNT), async_op=True).wait()
        assert (found[0] == 1).all() and (found[1] == 2).all()
    torch.accelerator.synchronize(0)
    dist.barrier(device_ids=[0])


@on_ranks(2)
def test_memory_is_given_back_when_the_stream_waits(rank, size):
    """In the order of the stream: nobody gets it before the collective has passed."""
    warm_up(COUNT)
    mine = tensor(rank, COUNT)
    address = mine.data_ptr()
    if rank == 1:
        tell(rank)
    work = dist.all_reduce(mine, async_op=True)
    work.wait()
    del mine, work
    if rank == 0:
        taken = torch.empty(COUNT, device=DEVICE)
        assert taken.data_ptr() != address  # the stream has not come there
        tell(rank)
    torch.accelerator.synchronize(0)
    assert torch.empty(COUNT, device=DEVICE).data_ptr() == address


@on_ranks(2)
def test_a_future_is_there_at_once_and_its_callbacks_are_in_order(rank, size):
    warm_up()
    mine = tensor(rank + 1)
    if rank == 1:
        tell(rank)
    work = dist.all_reduce(mine, async_op=True)
    called = []

    def then(done):
        called.append(torch.accelerator.current_stream(0))
        return done.value()[0].clone()  # on the stream of the callback

    before = torch.accelerator.current_stream(0)
    copied = work.get_future().then(then)
    assert called and called[0] != before
    if rank == 0:
        assert not work.is_completed()
        tell(rank)
    assert (copied.wait() == 3).all()


@on_ranks(2)
def test_a_barrier_blocks_the_host(rank, size):
    dist.barrier(device_ids=[0])
    if rank == 0:
        gate = fake_gpu.close_gate(0)
        work = dist.barrier(device_ids=[0], async_op=True)
        assert not work.is_completed()
        with pytest.raises(Exception, match="timed out after 50 ms for barrier"):
            work.wait(after_ms(50))
        fake_gpu.open_gate(gate)
    else:
        work = dist.barrier(device_ids=[0], async_op=True)
    assert work.wait(after_ms(20_000)) and work.is_completed()
    # Waited for: what was on the stream before is done.
    mine, source = tensor(0), tensor(1)
    torch.accelerator.synchronize(0)
    mine.copy_(source)
    dist.barrier(device_ids=[0])
    assert (fake_gpu.peek(mine) == 1).all()


@on_ranks(2)
def test_a_wait_with_a_timeout_blocks_and_raises(rank, size):
    warm_up()
    mine = tensor(rank + 1)
    if rank == 1:
        tell(rank)
    work = dist.all_reduce(mine, async_op=True)
    if rank == 0:
        with pytest.raises(Exception, match="rank 0: wait.* timed out after 100 ms for all_reduce "
                                            "number"):
            work.wait(after_ms(100))
        tell(rank)
    assert work.wait(after_ms(20_000))
    assert (fake_gpu.peek(mine) == 3).all()


@on_ranks(2)
def test_a_coalesced_block_is_one_work(rank, size):
    tensors = [tensor(rank + i, 4 + i) for i in range(3)]
    with dist._coalescing_manager(device=DEVICE, async_ops=True) as block:
        for one in tensors:
            dist.all_reduce(one)
    assert len(block.works) == 1
    block.wait()
    assert all((one == 2 * i + 1).all() for i, one in enumerate(tensors))


@on_ranks(2)
def test_calls_are_captured_into_a_graph_and_replayed(rank, size):
    whole = torch.zeros(8, device=DEVICE)
    single, several = tensor(rank + 1), tensor(rank + 1)
    for is_async in (False, True):  # their links
        dist.all_reduce(single.clone(), async_op=is_async)
        dist.all_gather_into_tensor(whole, tensor(0, 4))
    torch.accelerator.synchronize(0)
    stream = torch.Stream(DEVICE)
    mine = tensor(rank, 4)
    torch.accelerator.synchronize(0)
    with stream:
        fake_gpu.begin_capture(0)
        dist.all_reduce(single)
        work = dist.all_reduce(several, async_op=True)
        work.wait()
        dist.all_gather_into_tensor(whole, mine, async_op=True).wait()
        graph = fake_gpu.end_capture(0)
        assert (fake_gpu.peek(single) == rank + 1).all()
        for replay in range(1, 4):
            fake_gpu.launch_graph(graph, 0)
            assert (single == 3 * 2 ** (replay - 1)).all()
            assert (several == 3 * 2 ** (replay - 1)).all()
            assert whole.tolist() == [0] * 4 + [1] * 4
    dist.barrier(device_ids=[0])
    fake_gpu.destroy_graph(graph)
    assert fake_gpu.failure() == ""
