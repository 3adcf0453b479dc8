// Convolutions that keep oneDNN's primitives, beside torch's.
#include "aten/convolution_primitive.h"

#include <ATen/Parallel.h>

#include <thread>

#include "aten_support.h"

namespace glowplug::aten::testing {
namespace {

ConvolutionPacking plain(const at::Tensor& x) {
  ConvolutionPacking how;
  how.padding = {1, 1};
  how.stride = how.dilation = {1, 1};
  how.inputSizes = x.sizes().vec();
  return how;
}

at::Tensor channelsLast(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

class Primitives : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!keepsPrimitives()) GTEST_SKIP() << "torch's library does not show oneDNN's functions";
  }

  const at::Tensor x_ = channelsLast(at::randn({2, 6, 9, 9}));
  const at::Tensor weight_ = at::randn({6, 3, 3, 3});
};

TEST_F(Primitives, ScaleAndBiasArePartOfThePacking) {
  ConvolutionPacking how = plain(x_);
  how.groups = 2;
  how.biased = true;
  const at::Tensor scale = at::rand({6}), bias = at::randn({6});
  const ConvolutionPrimitive primitive(weight_, scale, bias, how);
  const at::Tensor found = channelsLast(at::empty_like(x_));
  primitive.run(x_.const_data_ptr(), nullptr, nullptr, found.mutable_data_ptr());
  const at::Tensor scaled = weight_ * scale.view({-1, 1, 1, 1});
  EXPECT_TRUE(at::allclose(found, at::conv2d(x_, scaled, bias, 1, 1, 1, 2), 1e-5, 1e-5));
  EXPECT_GE(primitive.bytes(), weight_.nbytes());
}

TEST_F(Primitives, ThreadsRunItWithNumbersOfThreadsOfTheirOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not see OpenMP's barriers";
#endif
  const int before = at::get_num_threads();
  ConvolutionPacking how = plain(x_);
  how.groups = 2;
  const ConvolutionPrimitive primitive(weight_, {}, {}, how);
  const at::Tensor expected = at::conv2d(x_, weight_, {}, 1, 1, 1, 2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int count = 1; count <= 6; ++count) {
    threads.emplace_back([&, count] {
      at::set_num_threads(count);
      for (int i = 0; i < 20; ++i) {
        const at::Tensor found = channelsLast(at::empty_like(x_));
        primitive.run(x_.const_data_ptr(), nullptr, nullptr, found.mutable_data_ptr());
        if (!at::allclose(found, expected, 1e-5, 1e-5)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(before);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Primitives, WhatOneDnnRefusesThrows) {
  ConvolutionPacking how = plain(x_);
  how.groups = 2;
  how.stride = {-1, 1};
  EXPECT_THROW(ConvolutionPrimitive(weight_, {}, {}, how), std::runtime_error);
}

}  // namespace
}  // namespace glowplug::aten::testing
