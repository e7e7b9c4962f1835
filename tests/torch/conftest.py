"""Skips the tests of what an old PyTorch cannot do itself, whatever the backend."""
import pytest
import torch

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
NO_CPU_EVENTS = "its FSDP2 records events on streams, and those of the CPU have none"
NO_STORE = "a process group does not show its store (get_group_store)"
NO_SET_TIMEOUT = "a group has no set_timeout"
# Of PyTorch 2.6, by test.
LACKING_IN_2_6 = {
    "test_fsdp_on_2_ranks": NO_CPU_EVENTS, "test_fsdp_on_3_ranks": NO_CPU_EVENTS,
    "test_fsdp_on_4_ranks": NO_CPU_EVENTS, "test_fsdp_in_bf16": NO_CPU_EVENTS,
    "test_fsdp_accumulates_before_it_reduces": NO_CPU_EVENTS,
    "test_fsdp_clips_the_norm_of_all": NO_CPU_EVENTS, "test_hsdp_on_2_by_2": NO_CPU_EVENTS,
    "test_fsdp_of_tensor_parallel_blocks": "it refuses uneven shards with tensor parallelism",
    "test_fsdp_with_buffers_of_the_backend": "FSDP2 takes no memory from a backend",
    "test_memory_that_peers_reach_is_used_again": "backends allocate no tensors",
    "test_zero_redundancy_optimizer_inside_backward": "this is for NCCL alone",
    "test_monitored_barrier_names_who_is_missing": "monitored_barrier is for gloo alone",
    "test_monitored_barrier_reads_nothing_of_an_earlier_group": NO_STORE,
    "test_groups_may_be_made_again_in_one_place_of_a_store": NO_STORE,
    "test_a_group_whose_ranks_did_not_all_come_may_be_made_again": NO_STORE,
    "test_a_group_that_has_ended_says_so": "destroy_process_group does not tell the backend",
    "test_threads_that_callbacks_have_made_leave_again":
        "it sees 11 threads, not 12, and the cause is unknown",
    "test_sequence_numbers": "backends other than its own have none",
    "test_a_groups_timeout_can_be_raised": NO_SET_TIMEOUT,
    "test_a_groups_timeout_can_be_lowered": NO_SET_TIMEOUT,
    "test_a_group_is_split": "there is no split_group",
}


def pytest_collection_modifyitems(items):
    if VERSION >= (2, 7):
        return
    for item in items:
        if why := LACKING_IN_2_6.get(item.originalname):
            item.add_marker(pytest.mark.skip(reason=f"PyTorch {torch.__version__}: {why}"))
