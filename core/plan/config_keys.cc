#include "core/plan/config_keys.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace zoffload {
namespace {

using enum KeyType;

constexpr Allowed any() { return {}; }
constexpr Allowed at_least(double min) { return {.min = min}; }
constexpr Allowed between(double min, double max) { return {.min = min, .max = max}; }
constexpr Allowed below(double min, double max) { return {min, max, true}; }
constexpr Allowed one_of(std::string_view choices) { return {.choices = choices}; }

constexpr KeyRow honoured(std::string_view name, KeyType type, std::string_view fallback,
                          Allowed allowed, std::string_view meaning) {
  return {name, type, Treatment::kHonoured, fallback, allowed, meaning, {}};
}
constexpr KeyRow no_effect(std::string_view name, KeyType type, std::string_view fallback,
                           std::string_view meaning, Allowed allowed = any()) {
  return {name, type, Treatment::kNoEffect, fallback, allowed, meaning, {}};
}
constexpr KeyRow refused(std::string_view name, KeyType type, std::string_view fallback,
                         std::string_view meaning, Allowed allowed = any()) {
  return {name, type, Treatment::kRefused, fallback, allowed, meaning, {}};
}
constexpr KeyRow legacy(std::string_view name, KeyType type, std::string_view alias) {
  return {name, type, Treatment::kLegacy, "null", any(), "An old name", alias};
}
constexpr KeyRow scheduler(std::string_view name, KeyType type) {
  return refused(name, type, "null", "DeepSpeed's own schedulers; pass lr_scheduler= instead");
}
constexpr KeyRow zenflow(std::string_view name, KeyType type, std::string_view fallback) {
  return refused(name, type, fallback, "ZenFlow: updates of the important gradients first");
}

constexpr double kMaxCount = 1e9;      // of samples and of micro-steps
constexpr double kMaxBlock = 1 << 30;  // bytes

constexpr KeyRow kRows[] = {
    // Batch arithmetic and reductions.
    honoured("train_batch_size", kInt, "\"auto\"", between(1, kMaxCount),
             "Samples of one step over all ranks."),
    honoured("train_micro_batch_size_per_gpu", kInt, "\"auto\"", between(1, kMaxCount),
             "Samples of one forward and backward on one rank."),
    honoured("gradient_accumulation_steps", kInt, "\"auto\"", between(1, kMaxCount),
             "Micro-steps whose gradients are added up before an update."),
    honoured("gradient_clipping", kNumber, "0.0", at_least(0),
             "Largest global gradient norm; 0 is off, also when the key is absent."),
    refused("managed_gradient_accumulation", kBool, "true",
            "The user decides where a step ends, not gradient_accumulation_steps."),
    refused("prescale_gradients", kBool, "false", "Gradients divided before the reduction."),
    refused("gradient_predivide_factor", kNumber, "1.0",
            "Part of the division moved before the reduction."),
    refused("gradient_allreduce_op", kString, "\"mean\"", "Gradients summed, not averaged.",
            one_of("mean|sum")),
    refused("communication_data_type", kString, "null",
            "A type for the collectives other than the gradients' own.", one_of("fp16|bf16|fp32")),
    no_effect("seq_parallel_communication_data_type", kString, "\"fp32\"",
              "Type of sequence-parallel reductions, which do not exist here.",
              one_of("fp16|bf16|fp32")),
    refused("sparse_gradients", kBool, "false", "Embedding gradients reduced as sparse tensors."),
    no_effect("zero_allow_untested_optimizer", kBool, "false",
              "Every optimizer that this version has is tested with ZeRO."),
    no_effect("zero_force_ds_cpu_optimizer", kBool, "true",
              "Offloaded state is always updated by this engine's own kernels."),
    no_effect("dataloader_drop_last", kBool, "false",
              "Whether the data loader drops an incomplete last batch."),

    // The optimizer.
    honoured("optimizer.type", kString, "\"AdamW\"", any(),
             "Adam, AdamW, SGD, Lion or Adagrad; Adam means AdamW unless adam_w_mode is false."),
    honoured("optimizer.params.lr", kNumber, "0.001", at_least(0),
             "Learning rate; Adagrad's default is 0.01."),
    honoured("optimizer.params.betas", kPair, "[0.9, 0.999]", below(0, 1),
             "Adam's and Lion's decay rates."),
    honoured("optimizer.params.eps", kNumber, "1e-8", at_least(0),
             "Adam's and Adagrad's addend to the denominator; Adagrad's default is 1e-10."),
    honoured("optimizer.params.weight_decay", kNumber, "0.0", at_least(0), "Weight decay."),
    honoured("optimizer.params.adam_w_mode", kBool, "true", any(),
             "Weight decay applied to the weights (AdamW), not to the gradient."),
    honoured("optimizer.params.momentum", kNumber, "0.0", at_least(0), "SGD's momentum."),
    honoured("optimizer.params.dampening", kNumber, "0.0", any(),
             "The share of a gradient that SGD's momentum leaves out."),
    honoured("optimizer.params.nesterov", kBool, "false", any(), "SGD with Nesterov's momentum."),
    honoured("optimizer.params.lr_decay", kNumber, "0.0", at_least(0),
             "Adagrad's decay of the learning rate by the number of updates."),
    honoured("optimizer.params.initial_accumulator_value", kNumber, "0.0", at_least(0),
             "What Adagrad's sums of squares start from."),
    no_effect("optimizer.params.torch_adam", kBool, "false",
              "The update gives torch's result whichever implementation is asked for."),
    no_effect("optimizer.legacy_fusion", kBool, "false", "Chooses an old fused optimizer."),
    honoured(
        "optimizer.params.fp32_optimizer_states", kBool, "true", any(),
        "Moments in fp32; if false, in the type of the parameters. See zoffload.state_format."),
    refused("optimizer.params.bias_correction", kBool, "true", "Adam without bias correction."),
    refused("optimizer.params.amsgrad", kBool, "false", "The AMSGrad variant of Adam."),
    refused("optimizer.params.max_grad_norm", kNumber, "null",
            "Clipping by the optimizer; set gradient_clipping instead."),

    // The scheduler.
    scheduler("scheduler", kBlock),
    scheduler("scheduler.type", kString),
    scheduler("scheduler.params.warmup_min_lr", kNumber),
    scheduler("scheduler.params.warmup_max_lr", kNumber),
    scheduler("scheduler.params.warmup_num_steps", kInt),
    scheduler("scheduler.params.warmup_min_ratio", kNumber),
    scheduler("scheduler.params.warmup_type", kString),
    scheduler("scheduler.params.total_num_steps", kInt),
    scheduler("scheduler.params.cos_min_ratio", kNumber),
    scheduler("scheduler.params.last_batch_iteration", kInt),
    scheduler("scheduler.params.lr_range_test_min_lr", kNumber),
    scheduler("scheduler.params.lr_range_test_step_size", kInt),
    scheduler("scheduler.params.lr_range_test_step_rate", kNumber),
    scheduler("scheduler.params.lr_range_test_staircase", kBool),
    scheduler("scheduler.params.cycle_min_lr", kNumber),
    scheduler("scheduler.params.cycle_max_lr", kNumber),
    scheduler("scheduler.params.decay_lr_rate", kNumber),
    scheduler("scheduler.params.cycle_first_step_size", kInt),
    scheduler("scheduler.params.cycle_second_step_size", kInt),
    scheduler("scheduler.params.cycle_first_stair_count", kInt),
    scheduler("scheduler.params.cycle_second_stair_count", kInt),
    scheduler("scheduler.params.decay_step_size", kInt),
    scheduler("scheduler.params.cycle_momentum", kBool),
    scheduler("scheduler.params.cycle_min_mom", kNumber),
    scheduler("scheduler.params.cycle_max_mom", kNumber),
    scheduler("scheduler.params.decay_mom_rate", kNumber),

    // Precision.
    honoured("bf16.enabled", kBool, "false", any(),
             "Parameters and gradients in bf16, with fp32 master weights."),
    no_effect("bf16.immediate_grad_update", kBool, "false",
              "Gradients are accumulated as they arrive in any case."),
    no_effect("bf16.check_grad_overflow", kBool, "true",
              "zoffload.skip_nonfinite decides about NaN and Inf gradients."),
    honoured("bf16.bf16_master_weights_and_grads", kBool, "false", any(),
             "The bytes of a bf16 master, but the bits of an fp32 one: the weight and a 16-bit "
             "residual. See zoffload.state_format."),
    honoured("bf16.bf16_optimizer_states", kBool, "false", any(),
             "Moments in bf16. See zoffload.state_format."),
    legacy("bfloat16.enabled", kBool, "bf16.enabled"),
    refused("fp16.enabled", kBool, "false", "fp16 and its loss scaling; bf16 or fp32 work."),
    refused("fp16.fp16_master_weights_and_grads", kBool, "false", "Master weights in fp16."),
    no_effect("fp16.auto_cast", kBool, "false", "Casts inputs to fp16, which is refused."),
    no_effect("fp16.loss_scale", kNumber, "0", "Fixed scale of an fp16 loss.", at_least(0)),
    no_effect("fp16.initial_scale_power", kInt, "16", "First scale of an fp16 loss."),
    no_effect("fp16.loss_scale_window", kInt, "1000", "Steps before an fp16 scale grows."),
    no_effect("fp16.hysteresis", kInt, "2", "Overflows before an fp16 scale shrinks."),
    no_effect("fp16.consecutive_hysteresis", kBool, "false", "How fp16 overflows are counted."),
    no_effect("fp16.min_loss_scale", kNumber, "1", "Smallest scale of an fp16 loss."),
    no_effect("data_types.grad_accum_dtype", kString, "null",
              "Gradients of several micro-steps are always added in fp32.",
              one_of("fp16|bf16|fp32")),
    no_effect("data_types.param_dtype", kString, "null", "bf16.enabled decides the type."),
    no_effect("data_types.buffer_dtype", kString, "null", "bf16.enabled casts fp32 buffers too."),
    refused("torch_autocast.enabled", kBool, "false",
            "Autocast set up by the engine; torch.autocast around the forward works."),
    no_effect("torch_autocast.dtype", kString, "\"bfloat16\"", "Type of the engine's autocast."),
    no_effect("torch_autocast.lower_precision_safe_modules", kStrings, "null",
              "Modules that the engine's autocast may run in 16 bits."),
    refused("amp.enabled", kBool, "false", "NVIDIA Apex mixed precision."),
    no_effect("amp.opt_level", kString, "\"O1\"", "Level of Apex mixed precision."),
    no_effect("amp.cast_model_type", kString, "null", "Type of the model under Apex."),
    no_effect("amp.patch_torch_functions", kBool, "null", "How Apex casts."),
    no_effect("amp.keep_batchnorm_fp32", kBool, "null", "What Apex leaves in fp32."),
    no_effect("amp.master_weights", kBool, "null", "Whether Apex keeps fp32 weights."),
    no_effect("amp.loss_scale", kNumber, "null", "Loss scale of Apex."),

    // ZeRO.
    honoured("zero_optimization.stage", kInt, "0", between(0, 3),
             "What is sharded; this version has stage 3: everything."),
    honoured("zero_optimization.sub_group_size", kInt, "1000000000", at_least(1),
             "Most elements of one subgroup, the unit of update; see zoffload.subgroup_bytes."),
    no_effect("zero_optimization.contiguous_gradients", kBool, "true",
              "A bucket's gradients always lie in one array."),
    no_effect("zero_optimization.reduce_scatter", kBool, "true",
              "Gradients are always reduce-scattered."),
    no_effect("zero_optimization.reduce_bucket_size", kInt, "500000000",
              "Buckets follow the model's blocks.", at_least(0)),
    no_effect("zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true",
              "How stages 1 and 2 reduce."),
    no_effect("zero_optimization.allgather_partitions", kBool, "true",
              "Parameters are always all-gathered."),
    no_effect("zero_optimization.allgather_bucket_size", kInt, "500000000",
              "How much stages 1 and 2 gather at once.", at_least(0)),
    no_effect("zero_optimization.overlap_comm", kBool, "null",
              "Reductions always overlap the backward pass."),
    no_effect("zero_optimization.load_from_fp32_weights", kBool, "true",
              "Master weights are always restored exactly."),
    no_effect("zero_optimization.elastic_checkpoint", kBool, "false",
              "Checkpoints do not depend on this switch."),
    no_effect("zero_optimization.stage3_prefetch_bucket_size", kInt, "50000000",
              "zoffload.prefetch counts the buckets gathered ahead.", at_least(0)),
    no_effect("zero_optimization.stage3_param_persistence_threshold", kInt, "100000",
              "Small parameters share a bucket with their neighbours.", at_least(0)),
    no_effect("zero_optimization.stage3_model_persistence_threshold", kInt, "9223372036854775807",
              "No parameter stays gathered for its small size.", at_least(0)),
    no_effect("zero_optimization.stage3_max_live_parameters", kInt, "1000000000",
              "zoffload.prefetch and zoffload.device_bytes bound what is gathered.", at_least(0)),
    no_effect("zero_optimization.stage3_max_reuse_distance", kInt, "1000000000",
              "A bucket is released after its last use in a pass.", at_least(0)),
    no_effect("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool, "false",
              "Saving whole 16-bit weights needs no switch."),
    legacy("zero_optimization.stage3_gather_fp16_weights_on_model_save", kBool,
           "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    no_effect("zero_optimization.stage3_module_granularity_threshold", kInt, "0",
              "Buckets follow the model's blocks."),
    no_effect("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool, "false",
              "Parameters are always all-gathered."),
    no_effect("zero_optimization.stage3_allgather_sequential", kBool, "false",
              "Collectives always start one by one, in the schedule's order."),
    no_effect("zero_optimization.ignore_unused_parameters", kBool, "true",
              "A parameter without a gradient is not updated in that step."),
    refused("zero_optimization.legacy_stage1", kBool, "false", "The old stage 1."),
    no_effect("zero_optimization.round_robin_gradients", kBool, "false",
              "How stages 1 and 2 spread gradient copies."),
    refused("zero_optimization.zero_hpz_partition_size", kInt, "1",
            "ZeRO++ hpZ: a second copy of the parameters in each node."),
    refused("zero_optimization.zero_quantized_weights", kBool, "false",
            "ZeRO++ qwZ: parameters gathered as int8."),
    refused("zero_optimization.zero_quantized_nontrainable_weights", kBool, "false",
            "ZeRO++ qwZ for frozen parameters."),
    refused("zero_optimization.zero_quantized_gradients", kBool, "false",
            "ZeRO++ qgZ: gradients reduced in few bits."),
    refused("zero_optimization.zeropp_loco_param", kBlock, "null",
            "ZeRO++ LoCo: error feedback for quantised gradients."),
    refused("zero_optimization.zeropp_loco_param.err_beta", kNumber, "0.8",
            "ZeRO++ LoCo: decay of the error."),
    refused("zero_optimization.zeropp_loco_param.reset_T", kInt, "1024",
            "ZeRO++ LoCo: steps between resets."),
    refused("zero_optimization.mics_shard_size", kInt, "-1",
            "MiCS: shards over a group of ranks, not over all."),
    refused("zero_optimization.mics_hierarchical_params_gather", kBool, "false",
            "MiCS: gathers in two levels."),
    no_effect("zero_optimization.memory_efficient_linear", kBool, "true",
              "Gathered weights are never saved twice."),
    no_effect("zero_optimization.pipeline_loading_checkpoint", kBool, "false",
              "How a checkpoint is read."),
    no_effect("zero_optimization.override_module_apply", kBool, "true",
              "module.apply() does not gather parameters."),
    no_effect("zero_optimization.log_trace_cache_warnings", kBool, "false",
              "Deviations from the schedule are counted in engine.stats()."),
    no_effect("zero_optimization.enable_sanity_checks", kBool, "false", "Checks are always on."),
    refused("zero_optimization.save_muon_momentum_buffer_in_memory", kBool, "false",
            "The Muon optimizer's momentum."),
    no_effect("zero_optimization.leaf_module.classes", kStrings, "[]",
              "Modules gathered as one unit; buckets follow the model's blocks."),
    no_effect("zero_optimization.leaf_module.names", kStrings, "[]",
              "Modules gathered as one unit, by name."),
    no_effect("zero_optimization.leaf_module.name_suffixes", kStrings, "[]",
              "Modules gathered as one unit, by the end of their name."),
    legacy("zero_optimization.cpu_offload", kBool, "zero_optimization.offload_optimizer.device"),
    legacy("zero_optimization.cpu_offload_param", kBool, "zero_optimization.offload_param.device"),
    legacy("zero_optimization.cpu_offload_params", kBool, "zero_optimization.offload_param.device"),
    legacy("zero_optimization.cpu_offload_use_pin_memory", kBool,
           "zero_optimization.offload_optimizer.pin_memory"),

    // Offload of the parameters.
    honoured("zero_optimization.offload_param.device", kString, "\"none\"", one_of("none|cpu|nvme"),
             "Home tier of the parameter shards."),
    honoured("zero_optimization.offload_param.nvme_path", kString, "null", any(),
             "Folder for the parameter shards; zoffload.nvme_path takes several."),
    no_effect("zero_optimization.offload_param.buffer_count", kInt, "5",
              "The plan reserves the slots it needs."),
    no_effect("zero_optimization.offload_param.buffer_size", kInt, "100000000",
              "The plan chooses the size of a slot."),
    no_effect("zero_optimization.offload_param.max_in_cpu", kInt, "1000000000",
              "zoffload.params gives the share kept in host memory."),
    no_effect("zero_optimization.offload_param.pin_memory", kBool, "true",
              "Host memory of the engine is always pinned."),

    // Offload of the optimizer.
    honoured("zero_optimization.offload_optimizer.device", kString, "\"none\"",
             one_of("none|cpu|nvme"), "Home tier of the master weights and moments."),
    honoured("zero_optimization.offload_optimizer.nvme_path", kString, "null", any(),
             "Folder for the optimizer state; zoffload.nvme_path takes several."),
    no_effect("zero_optimization.offload_optimizer.buffer_count", kInt, "4",
              "The plan reserves the slots it needs."),
    no_effect("zero_optimization.offload_optimizer.buffer_size", kInt, "null",
              "A key of old versions; the plan chooses the size of a slot."),
    no_effect("zero_optimization.offload_optimizer.pin_memory", kBool, "true",
              "Host memory of the engine is always pinned."),
    no_effect("zero_optimization.offload_optimizer.pipeline", kBool, "null",
              "A key of old versions; reads and writes always overlap the update."),
    no_effect("zero_optimization.offload_optimizer.pipeline_read", kBool, "false",
              "Reads always overlap the update."),
    no_effect("zero_optimization.offload_optimizer.pipeline_write", kBool, "false",
              "Writes always overlap the update."),
    no_effect("zero_optimization.offload_optimizer.fast_init", kBool, "false",
              "State is written once at the start and not read back."),
    refused("zero_optimization.offload_optimizer.ratio", kNumber, "1.0",
            "Twin-Flow: a part of the update on the accelerator.", between(0, 1)),
    refused("zero_optimization.offload_optimizer.super_offload", kBool, "false",
            "SuperOffload: an optimizer process overlapped with backward."),
    no_effect("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, "0.8",
              "zoffload.threads counts the workers.", between(0, 1)),

    // ZenFlow.
    zenflow("zero_optimization.zenflow", kBlock, "null"),
    zenflow("zero_optimization.zenflow.topk_ratio", kNumber, "0.1"),
    zenflow("zero_optimization.zenflow.select_strategy", kString, "\"auto\""),
    zenflow("zero_optimization.zenflow.select_interval", kInt, "\"auto\""),
    zenflow("zero_optimization.zenflow.update_interval", kInt, "\"auto\""),
    zenflow("zero_optimization.zenflow.overlap_step", kBool, "false"),
    zenflow("zero_optimization.zenflow.offload", kBool, "false"),
    zenflow("zero_optimization.zenflow.auto_ratio", kNumber, "0.99"),
    zenflow("zero_optimization.zenflow.full_warm_up_rounds", kInt, "0"),
    zenflow("zero_optimization.zenflow.pt_reserved_cores_perc", kNumber, "0.5"),
    zenflow("zero_optimization.zenflow.steps_per_epoch", kInt, "null"),

    // Asynchronous I/O.
    honoured("aio.block_size", kInt, "null", between(4096, kMaxBlock),
             "Bytes of one I/O request, a multiple of 4096; when absent, the profile's or 1 MiB."),
    honoured("aio.queue_depth", kInt, "null", between(1, 4096),
             "I/O requests in flight per path; when absent, the profile's or measured."),
    no_effect("aio.intra_op_parallelism", kInt, "1",
              "One queue per path is deep enough without more threads."),
    legacy("aio.thread_count", kInt, "aio.intra_op_parallelism"),
    legacy("aio.num_threads", kInt, "aio.intra_op_parallelism"),
    no_effect("aio.single_submit", kBool, "false", "Requests are submitted one by one."),
    no_effect("aio.overlap_events", kBool, "true", "Submitting never waits for completions."),
    refused("aio.use_gds", kBool, "false", "GPUDirect Storage: disk to accelerator directly."),

    // Activation checkpointing, compilation, checkpoints.
    no_effect("activation_checkpointing.partition_activations", kBool, "false",
              "Acts through DeepSpeed's checkpoint function; torch.utils.checkpoint works."),
    no_effect("activation_checkpointing.cpu_checkpointing", kBool, "false",
              "Acts through DeepSpeed's checkpoint function; torch.utils.checkpoint works."),
    no_effect("activation_checkpointing.contiguous_memory_optimization", kBool, "false",
              "Acts through DeepSpeed's checkpoint function."),
    no_effect("activation_checkpointing.number_checkpoints", kInt, "null",
              "Acts through DeepSpeed's checkpoint function."),
    no_effect("activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false",
              "Acts through DeepSpeed's checkpoint function."),
    no_effect("activation_checkpointing.profile", kBool, "false",
              "Acts through DeepSpeed's checkpoint function."),
    refused("compile.deepcompile", kBool, "false", "DeepCompile: ZeRO as graph passes."),
    refused("compile.offload_activation", kBool, "false", "DeepCompile: activations offloaded."),
    refused("compile.offload_opt_states", kBool, "false", "DeepCompile: optimizer offloaded."),
    refused("compile.offload_parameters", kBool, "false", "DeepCompile: parameters offloaded."),
    no_effect("compile.offload_activation_pin_memory", kBool, "true", "A DeepCompile setting."),
    no_effect("compile.double_buffer", kBool, "true", "A DeepCompile setting."),
    no_effect("compile.free_activation", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.symmetric_memory", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.debug_log", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.sync_before_reduce", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.sync_after_reduce", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.sync_before_allgather", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.sync_after_allgather", kBool, "false", "A DeepCompile setting."),
    no_effect("compile.keep_int_input_tensors", kBool, "true", "A DeepCompile setting."),
    no_effect("compile.keep_all_input_tensors", kBool, "false", "A DeepCompile setting."),
    no_effect("checkpoint.tag_validation", kString, "\"Warn\"",
              "Whether the ranks compare the checkpoint's tag.", one_of("Ignore|Warn|Fail")),
    refused("checkpoint.load_universal", kBool, "false", "DeepSpeed's universal checkpoints."),
    refused("checkpoint.use_node_local_storage", kBool, "false",
            "Checkpoints spread over the nodes' own disks."),
    no_effect("checkpoint.parallel_write.pipeline_stage", kBool, "false",
              "Pipeline stages do not exist here."),
    no_effect("checkpoint.writer.type", kString, "null", "How DeepSpeed writes its checkpoints.",
              one_of("FAST|PYTHON|MOCK")),
    no_effect("checkpoint.writer.io_buffer_size", kInt, "67108864", "A FastPersist setting."),
    no_effect("checkpoint.writer.io_buffer_double", kBool, "true", "A FastPersist setting."),
    no_effect("checkpoint.writer.show_statistics", kBool, "false", "A FastPersist setting."),
    no_effect("checkpoint.writer.data_parallel", kString, "null", "A FastPersist setting.",
              one_of("replica|socket|machine")),
    no_effect("checkpoint.writer.decoupled", kBool, "false", "A FastPersist setting."),
    no_effect("checkpoint.writer.io_multiplier", kInt, "1", "A FastPersist setting."),

    // Observability.
    no_effect("steps_per_print", kInt, "null", "Steps between DeepSpeed's progress lines."),
    no_effect("wall_clock_breakdown", kBool, "false", "DeepSpeed's timers."),
    no_effect("memory_breakdown", kBool, "false",
              "DeepSpeed's memory report; engine.stats() has each tier's bytes."),
    no_effect("dump_state", kBool, "false", "The resolved config can be printed instead."),
    no_effect("timers.throughput.enabled", kBool, "true", "DeepSpeed's throughput timer."),
    no_effect("timers.throughput.synchronized", kBool, "true", "DeepSpeed's throughput timer."),
    no_effect("flops_profiler.enabled", kBool, "false", "DeepSpeed's FLOPS profiler."),
    no_effect("flops_profiler.recompute_fwd_factor", kNumber, "0.0", "A FLOPS profiler setting."),
    no_effect("flops_profiler.profile_step", kInt, "1", "A FLOPS profiler setting."),
    no_effect("flops_profiler.module_depth", kInt, "-1", "A FLOPS profiler setting."),
    no_effect("flops_profiler.top_modules", kInt, "1", "A FLOPS profiler setting."),
    no_effect("flops_profiler.detailed", kBool, "true", "A FLOPS profiler setting."),
    no_effect("flops_profiler.output_file", kString, "null", "A FLOPS profiler setting."),
    no_effect("comms_logger.enabled", kBool, "false", "DeepSpeed's log of collectives."),
    no_effect("comms_logger.verbose", kBool, "false", "A communication log setting."),
    no_effect("comms_logger.prof_all", kBool, "true", "A communication log setting."),
    no_effect("comms_logger.debug", kBool, "false", "A communication log setting."),
    no_effect("comms_logger.prof_ops", kStrings, "[]", "A communication log setting."),
    no_effect("tensorboard.enabled", kBool, "false", "DeepSpeed's TensorBoard monitor."),
    no_effect("tensorboard.output_path", kString, "\"\"", "Folder of the TensorBoard monitor."),
    no_effect("tensorboard.job_name", kString, "\"DeepSpeedJobName\"", "Name of its run."),
    no_effect("csv_monitor.enabled", kBool, "false", "DeepSpeed's CSV monitor."),
    no_effect("csv_monitor.output_path", kString, "\"\"", "Folder of the CSV monitor."),
    no_effect("csv_monitor.job_name", kString, "\"DeepSpeedJobName\"", "Name of its run."),
    no_effect("wandb.enabled", kBool, "false", "DeepSpeed's Weights & Biases monitor."),
    no_effect("wandb.group", kString, "null", "A Weights & Biases setting."),
    no_effect("wandb.team", kString, "null", "A Weights & Biases setting."),
    no_effect("wandb.project", kString, "\"deepspeed\"", "A Weights & Biases setting."),
    no_effect("comet.enabled", kBool, "false", "DeepSpeed's Comet monitor."),
    no_effect("comet.samples_log_interval", kInt, "100", "A Comet setting."),
    no_effect("comet.project", kString, "null", "A Comet setting."),
    no_effect("comet.workspace", kString, "null", "A Comet setting."),
    no_effect("comet.api_key", kString, "null", "A Comet setting."),
    no_effect("comet.experiment_name", kString, "null", "A Comet setting."),
    no_effect("comet.experiment_key", kString, "null", "A Comet setting."),
    no_effect("comet.online", kBool, "null", "A Comet setting."),
    no_effect("comet.mode", kString, "null", "A Comet setting."),

    // Whole features of DeepSpeed that are outside this engine.
    refused("autotuning", kBlock, "null", "DeepSpeed's autotuner."),
    refused("compression_training", kBlock, "null", "Compression of the model."),
    refused("curriculum_learning", kBlock, "null", "Curriculum learning."),
    refused("data_efficiency", kBlock, "null", "Data sampling and routing."),
    refused("eigenvalue", kBlock, "null", "Eigenvalues for mixture of quantisation."),
    refused("elasticity", kBlock, "null", "Batch sizes for elastic jobs."),
    refused("hybrid_engine", kBlock, "null", "Training and generation in one engine."),
    refused("nebula", kBlock, "null", "Azure's checkpoint service."),
    refused("pipeline", kBlock, "null", "Pipeline parallelism."),
    refused("progressive_layer_drop", kBlock, "null", "Progressive layer dropping."),
    refused("sparse_attention", kBlock, "null", "Sparse attention kernels."),
    refused("tensor_parallel", kBlock, "null", "Tensor parallelism."),

    // What DeepSpeed has no key for.
    honoured("zoffload.params", kPlacement, "null", any(),
             "Home tiers of the parameter shards; wins over offload_param.device."),
    honoured("zoffload.optimizer", kPlacement, "null", any(),
             "Home tiers of the optimizer state; wins over offload_optimizer.device."),
    honoured("zoffload.state_format", kString, "\"fp32\"",
             one_of("fp32|split|bf16|split+bf16|int8|split+int8"),
             "How master weights and moments are stored; wins over DeepSpeed's keys for it."),
    honoured("zoffload.rules", kRules, "[]", any(),
             "State formats of some parameters: the first rule whose \"params\", a regular "
             "expression, is found in the name; else zoffload.state_format."),
    honoured("zoffload.nvme_path", kStrings, "[]", any(),
             "Folders on NVMe drives, used as one tier; wins over the other nvme_path keys."),
    honoured("zoffload.host_bytes", kBytes, "0", at_least(0),
             "Hard budget of pinned host memory per rank; 0 is no limit."),
    honoured("zoffload.device_bytes", kBytes, "0", at_least(0),
             "Hard budget of accelerator memory per rank; 0 is no limit."),
    honoured("zoffload.prefetch", kInt, "2", between(0, 1024), "Buckets gathered ahead."),
    honoured("zoffload.threads", kInt, "0", between(0, 4096),
             "CPU workers of the update; 0 is as many as this rank's share of the cores."),
    honoured("zoffload.subgroup_bytes", kBytes, "0", between(0, kMaxBlock),
             "Most bytes of optimizer state in one subgroup; 0 is 16 MiB, or up to 64 MiB where "
             "the profile found larger blocks, and less where all slots would take over 512 MiB."),
    honoured("zoffload.io_engine", kString, "\"auto\"", one_of("auto|uring|libaio|threads"),
             "How files are read and written; auto takes io_uring where it works, else libaio for "
             "direct files, else threads."),
    honoured("zoffload.profile", kString, "null", any(),
             "File of what this machine was measured to do, from zoffload-bench profile."),
    honoured("zoffload.allow_memory_paths", kBool, "false", any(),
             "Takes an nvme_path that is memory (tmpfs), which is an error otherwise."),
    honoured("zoffload.verify_reads", kBool, "true", any(),
             "Checks the sum of everything read back from NVMe."),
    honoured("zoffload.stall_timeout", kNumber, "60.0", between(0.001, 1e9),
             "Seconds without any progress after which a step fails."),
    honoured("zoffload.skip_nonfinite", kBool, "true", any(),
             "Skips the update of a step whose gradient norm is NaN or Inf."),
};

std::string format_bound(double bound) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", bound);
  return text;
}

const char* type_phrase(KeyType type) {
  switch (type) {
    case kBool: return "true or false";
    case kInt: return "a whole number";
    case kNumber: return "a number";
    case kPair: return "a list of two numbers";
    case kBytes: return "bytes, as a whole number or as \"256MiB\" or \"2GB\"";
    case kString: return "a string";
    case kStrings: return "a string or a list of strings";
    case kPlacement:
      return "\"hbm\", \"host\", \"cpu\", \"nvme\", or fractions of them that add to 1";
    case kRules:
      return "a list of {\"params\": a regular expression on names, \"state_format\": a name}";
    case kBlock: return "an object";
  }
  return "unknown";
}

}  // namespace

const char* treatment_name(Treatment treatment) {
  switch (treatment) {
    case Treatment::kHonoured: return "honoured";
    case Treatment::kLegacy: return "legacy";
    case Treatment::kNoEffect: return "no effect here";
    case Treatment::kRefused: return "refused";
  }
  return "unknown";
}

std::span<const KeyRow> config_keys() { return kRows; }

const KeyRow* find_key(std::string_view name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const KeyRow& candidate) { return candidate.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

bool has_keys_below(std::string_view block) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const KeyRow& row) {
    return row.name.size() > block.size() && row.name.starts_with(block) &&
           row.name[block.size()] == '.';
  });
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  for (const KeyRow& row : kRows) {
    for (size_t dot = row.name.find('.'); dot != row.name.npos; dot = row.name.find('.', dot + 1)) {
      names.push_back(row.name.substr(0, dot));
    }
    names.push_back(row.name);
  }
  return names;
}

std::vector<std::string_view> choices_of(const Allowed& allowed) {
  std::vector<std::string_view> choices;
  std::string_view rest = allowed.choices;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    choices.push_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return choices;
}

std::string describe_allowed(const KeyRow& row) {
  if (!row.allowed.choices.empty()) {
    std::string text = "one of";
    const char* separator = " ";
    for (std::string_view choice : choices_of(row.allowed)) {
      text.append(separator).append(choice);
      separator = ", ";
    }
    return text;
  }
  std::string text = type_phrase(row.type);
  if (row.allowed.min > Allowed().min) text += " >= " + format_bound(row.allowed.min);
  if (row.allowed.max < Allowed().max) {
    text += row.allowed.min > Allowed().min ? " and" : "";
    text += (row.allowed.max_excluded ? " < " : " <= ") + format_bound(row.allowed.max);
  }
  return text;
}

}  // namespace zoffload
